// The cache of compiled kernels. It is opened once a process, so each use here is a process of its
// own: this program again, with the one test that runs a kernel.
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "protocol/base/sha256.h"
#include "tests/unit/emulation_runtime/program_fixture.h"

namespace smolvm::emulation {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kKernel[] = R"(.version 7.0
.target sm_70
.address_size 64
.visible .entry cached(.param .u64 out)
{
  .reg .b32 %r<2>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, NUMBER;
  st.global.u32 [%rd1], %r1;
  ret;
}
)";

// What the child runs; NUMBER from the environment.
class CacheChild : public ProgramTest {};

TEST_F(CacheChild, RunsAKernel) {
  const char* number = getenv("CACHE_TEST_NUMBER");
  if (number == nullptr) GTEST_SKIP() << "run by the other tests here, in processes of their own";
  std::string text = kKernel;
  text.replace(text.find("NUMBER"), 6, number);
  ASSERT_EQ(Load(text), "");
  uint32_t* out = Allocate<uint32_t>(1);
  ASSERT_EQ(Run("cached", 1, 1, Params().Add(out)), CUDA_SUCCESS);
  EXPECT_EQ(*out, static_cast<uint32_t>(std::stoul(number)));
}

class Cache : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "smolvm-cache-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path cache() const { return folder_ / "cache"; }
  std::vector<fs::path> Entries() const {
    std::vector<fs::path> entries;
    if (!fs::exists(cache())) return entries;
    for (const auto& entry : fs::directory_iterator(cache())) entries.push_back(entry.path());
    return entries;
  }
  // Runs the kernel in a fresh process; the log of that process.
  std::string RunWith(const std::string& cache, const char* number = "7") {
    const fs::path log = folder_ / "log";
    fs::remove(log);
    const pid_t child = fork();
    if (child == 0) {
      setenv("SMOLVM_CUDA_EMULATION_CACHE", cache.c_str(), 1);
      setenv("SMOLVM_CUDA_LOG", "info", 1);
      setenv("SMOLVM_CUDA_LOG_FILE", log.c_str(), 1);
      setenv("CACHE_TEST_NUMBER", number, 1);
      execl("/proc/self/exe", "cache_test", "--gtest_filter=CacheChild.*", "--gtest_brief=1",
            nullptr);
      _exit(127);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << "the kernel must run, whatever the cache is like";
    std::ifstream file(log);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string RunCached(const char* number = "7") { return RunWith(cache(), number); }
  void Damage(const std::function<void(std::string*)>& how) {
    ASSERT_EQ(Entries().size(), 1u);
    std::ifstream in(Entries()[0], std::ios::binary);
    std::string bytes(std::istreambuf_iterator<char>(in), {});
    how(&bytes);
    std::ofstream(Entries()[0], std::ios::binary | std::ios::trunc) << bytes;
  }

  fs::path folder_;
};

TEST_F(Cache, IsHitAfterARestart) {
  EXPECT_THAT(RunCached(), HasSubstr("from=compiler"));
  ASSERT_EQ(Entries().size(), 1u);
  struct stat status {};
  ASSERT_EQ(stat(Entries()[0].c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600u);  // nobody else puts code there
  EXPECT_THAT(RunCached(), HasSubstr("from=disk"));
  // Another text is another kernel.
  EXPECT_THAT(RunCached("8"), HasSubstr("from=compiler"));
  EXPECT_EQ(Entries().size(), 2u);
  EXPECT_THAT(RunCached("7"), HasSubstr("from=disk"));
}

TEST_F(Cache, DamagedEntriesAreIgnoredAndReplaced) {
  const std::function<void(std::string*)> kDamages[] = {
      [](std::string* bytes) { (*bytes)[bytes->size() / 2] ^= 1; },
      [](std::string* bytes) { (*bytes)[0] = 'x'; },  // the digest
      [](std::string* bytes) { bytes->resize(bytes->size() - 1); },
      [](std::string* bytes) { bytes->resize(64); },
      [](std::string* bytes) { bytes->clear(); },
      [](std::string* bytes) { *bytes = Sha256Of("no object") + "no object"; },
  };
  RunCached();
  for (const auto& damage : kDamages) {
    Damage(damage);
    EXPECT_THAT(RunCached(), HasSubstr("from=compiler"));
    EXPECT_THAT(RunCached(), HasSubstr("from=disk"));
  }
}

TEST_F(Cache, LinksAreNotFollowed) {
  RunCached();
  ASSERT_EQ(Entries().size(), 1u);
  const fs::path entry = Entries()[0];
  fs::rename(entry, folder_ / "elsewhere");
  fs::create_symlink(folder_ / "elsewhere", entry);
  EXPECT_THAT(RunCached(), HasSubstr("from=compiler"));
}

TEST_F(Cache, WithoutAUsableFolderKernelsAreCompiledAndItIsSaid) {
  std::ofstream(folder_ / "file") << "no folder";
  for (const fs::path& path : {folder_ / "file", folder_ / "no" / "parent"}) {
    const std::string log = RunWith(path);
    EXPECT_THAT(log, HasSubstr("event=cache_unusable")) << path;
    EXPECT_THAT(log, HasSubstr("from=compiler"));
  }
  // A folder in which nobody can make a file, root neither.
  const std::string log = RunWith("/proc");
  EXPECT_THAT(log, HasSubstr("event=cache_unwritable"));
  EXPECT_THAT(log, HasSubstr("from=compiler"));
}

TEST_F(Cache, Off) {
  for (const char* off : {"off", ""}) {
    const std::string log = RunWith(off);
    EXPECT_THAT(log, HasSubstr("from=compiler"));
    EXPECT_THAT(log, Not(HasSubstr("event=cache")));
  }
  EXPECT_FALSE(fs::exists("off"));
}

// What is written first under another name does not stay there.
TEST_F(Cache, HoldsNothingButWholeEntries) {
  RunCached();
  ASSERT_EQ(Entries().size(), 1u);
  EXPECT_EQ(Entries()[0].filename().string().size(), 64u);  // a digest
}

}  // namespace
}  // namespace smolvm::emulation
