// The emulation library against cuda.h and the export list.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

#include "protocol/gen/exports/error_names.h"
#include "protocol/gen/exports/export_model.h"
#include "tests/parity/elf_exports.h"

namespace smolvm::exports {
namespace {

std::string ReadFile(const char* path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(EmulationLibraryTest, ExportsTheWholeListAndNothingElse) {
  const auto names = ParseExportList(ReadFile(SMOLVM_EXPORTS_TXT));
  const std::set<std::string> listed(names.begin(), names.end());
  EXPECT_EQ(parity::ElfExports(SMOLVM_EMULATION_LIBRARY), listed);
}

// A program may close the library while its threads still run.
TEST(EmulationLibraryTest, SurvivesDlclose) {
  void* library = dlopen(SMOLVM_EMULATION_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(library, "cuInit"));
  const auto create =
      reinterpret_cast<int (*)(void**, unsigned, int)>(dlsym(library, "cuCtxCreate_v2"));
  const auto call =
      reinterpret_cast<int (*)(void*, void (*)(void*), void*)>(dlsym(library, "cuLaunchHostFunc"));
  void* context = nullptr;
  std::atomic<bool> open = false, ran = false;
  std::atomic<bool>* const flags[] = {&open, &ran};
  ASSERT_EQ(init(0), 0);
  ASSERT_EQ(create(&context, 0, 0), 0);
  ASSERT_EQ(call(
                nullptr,
                [](void* data) {
                  auto* const* both = static_cast<std::atomic<bool>* const*>(data);
                  both[0]->wait(false);
                  *both[1] = true;
                  both[1]->notify_all();
                },
                const_cast<std::atomic<bool>**>(flags)),
            0);
  EXPECT_EQ(dlclose(library), 0);
  open = true;
  open.notify_all();
  ran.wait(false);
  EXPECT_TRUE(ran);
}

// A kernel that never ends, on a stream's own thread, which the time limit must reach.
[[noreturn]] void RunEndlessKernel() {
  constexpr int kNotSupported = 801, kLaunchTimeout = 702;
  alarm(60);
  setenv("SMOLVM_CUDA_KERNEL_TIMEOUT_MS", "100", 1);
  void* library = dlopen(SMOLVM_EMULATION_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(library, "cuInit"));
  const auto create =
      reinterpret_cast<int (*)(void**, unsigned, int)>(dlsym(library, "cuCtxCreate_v2"));
  const auto load =
      reinterpret_cast<int (*)(void**, const void*)>(dlsym(library, "cuModuleLoadData"));
  const auto find =
      reinterpret_cast<int (*)(void**, void*, const char*)>(dlsym(library, "cuModuleGetFunction"));
  using Launch = int (*)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                         unsigned, void*, void**, void**);
  const auto launch = reinterpret_cast<Launch>(dlsym(library, "cuLaunchKernel"));
  const auto wait = reinterpret_cast<int (*)()>(dlsym(library, "cuCtxSynchronize"));
  void *context = nullptr, *module = nullptr, *function = nullptr;
  const char* text =
      ".version 8.0\n.target sm_75\n.address_size 64\n"
      ".visible .entry endless() {\nagain:\n  bra again;\n}\n";
  if (init(0) != 0 || create(&context, 0, 0) != 0 || load(&module, text) != 0 ||
      find(&function, module, "endless") != 0)
    _exit(1);
  const int result = launch(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
  if (result == kNotSupported) _exit(3);  // a build without the kernel compiler
  _exit(result == 0 && wait() == kLaunchTimeout ? 0 : 2);
}

TEST(EmulationLibraryTest, TheTimeLimitEndsAKernel) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      RunEndlessKernel(),
      [](int status) {
        return WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 3);
      },
      "");
}

TEST(ErrorNamesTest, HasEveryResultOfTheHeader) {
  const std::string header = ReadFile(SMOLVM_CUDA_H);
  const size_t begin = header.find("enum cudaError_enum"), end = header.find("} CUresult;");
  ASSERT_LT(begin, end);
  const std::string results = header.substr(begin, end - begin);
  const std::regex row(R"((CUDA_(?:SUCCESS|ERROR_\w+))\s*=\s*(\d+))");
  std::set<int> known;
  for (std::sregex_iterator it(results.begin(), results.end(), row), last; it != last; ++it) {
    const int number = std::stoi((*it)[2]);
    const char* name = ErrorName(number);
    ASSERT_NE(name, nullptr) << (*it)[1];
    EXPECT_EQ((*it)[1], name);
    ASSERT_NE(ErrorString(number), nullptr);
    EXPECT_GT(std::string(ErrorString(number)).size(), 3u);
    known.insert(number);
  }
  EXPECT_GT(known.size(), 90u);
  if (SMOLVM_CUDA_VERSION != 13000) return;  // a newer header may know more, which is caught above
  for (int number = 0; number < 2000; ++number)
    EXPECT_EQ(ErrorName(number) != nullptr, known.contains(number)) << number;
}

}  // namespace
}  // namespace smolvm::exports
