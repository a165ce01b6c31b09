// What writing a line does to the process it is written in.
#include "protocol/log/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>

namespace smolvm::log {
namespace {

constexpr rlim_t kLargest = 600;

class LogTest : public ::testing::Test {
 protected:
  LogTest() { setenv("SMOLVM_CUDA_LOG_FILE", file_.c_str(), 1); }
  ~LogTest() override {
    unsetenv("SMOLVM_CUDA_LOG_FILE");
    std::filesystem::remove(file_);
  }
  const std::string file_ =
      std::filesystem::temp_directory_path() / ("smolvm-log-test-" + std::to_string(getpid()));
};

// In a process of its own, with the dispositions that any program begins with.
void LimitFiles() {
  signal(SIGXFSZ, SIG_DFL);
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  limit.rlim_cur = kLargest;
  setrlimit(RLIMIT_FSIZE, &limit);
  SetThreshold(Level::kInfo);
}

// 0 when the program is as it was.
int WriteBeyondTheLimit() {
  LimitFiles();
  for (int i = 0; i < 50; ++i) Info("event=line number={}", i);
  sigset_t pending, blocked;
  sigpending(&pending);
  pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  return sigismember(&pending, SIGXFSZ) + 2 * sigismember(&blocked, SIGXFSZ);
}

TEST_F(LogTest, AFileThatMayNotGrowEndsNoProgram) {
  EXPECT_EXIT(_exit(WriteBeyondTheLimit()), ::testing::ExitedWithCode(0), "");
  EXPECT_EQ(std::filesystem::file_size(file_), kLargest);
}

TEST_F(LogTest, TheProgramsOwnSignalStaysItsOwn) {
  const auto program = [this] {
    WriteBeyondTheLimit();
    const int fd = open(file_.c_str(), O_WRONLY | O_APPEND);
    const ssize_t written = write(fd, "x", 1);
    _exit(written == 1 ? 3 : 4);
  };
  EXPECT_EXIT(program(), ::testing::KilledBySignal(SIGXFSZ), "");
}

}  // namespace
}  // namespace smolvm::log
