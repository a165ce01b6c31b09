// smolvm-cuda-daemon --emulation-cache DIR|off.
#include <filesystem>

#include "tests/conformance/remoting/fixture.h"

namespace smolvm::remoting {
namespace {

size_t EntriesIn(const std::string& folder) {
  if (!std::filesystem::exists(folder)) return 0;
  const std::filesystem::directory_iterator entries(folder);
  return static_cast<size_t>(std::distance(begin(entries), end(entries)));
}

void RunsAKernel(const Daemon& daemon) {
  const auto guest = StartGuest(daemon.socket(), {"vector_add"});
  EXPECT_EQ(guest->Wait(), 0) << guest->output() << daemon.log();
}

TEST(EmulationCache, KernelsOfSessionsGoToTheFolderAndComeFromIt) {
#ifndef SMOLVM_KERNELS_RUN
  GTEST_SKIP() << "this build runs no kernels";
#endif
  const Folder folder;
  const std::string cache = folder / "cache";
  const Daemon daemon({"--emulation-cache", cache});
  RunsAKernel(daemon);
  EXPECT_EQ(EntriesIn(cache), 1u) << daemon.log();
  RunsAKernel(daemon);  // another session, another worker process
  EXPECT_EQ(EntriesIn(cache), 1u);
}

TEST(EmulationCache, Off) {
#ifndef SMOLVM_KERNELS_RUN
  GTEST_SKIP() << "this build runs no kernels";
#endif
  const Daemon daemon({"--emulation-cache", "off"});
  RunsAKernel(daemon);
  EXPECT_FALSE(std::filesystem::exists("off"));
}

}  // namespace
}  // namespace smolvm::remoting
