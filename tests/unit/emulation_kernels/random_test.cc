// Random kernels on the compiler against the reference interpreter in tests/support. Seeds are
// fixed, or printed: a failure is the same everywhere, and its message has the kernel.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <initializer_list>

#include "host-daemon/emulation/ptx/parse.h"
#include "tests/support/ptx_interpreter.h"
#include "tests/unit/emulation_kernels/random_kernel.h"
#include "tests/unit/emulation_runtime/program_fixture.h"

namespace smolvm::emulation {
namespace {

constexpr uint32_t kGrid = 2;
constexpr uint32_t kThreads = kGrid * kRandomThreads;
constexpr size_t kOutputs = size_t{kThreads} * kRandomOutputs;
constexpr int kModules = 10;
constexpr int kKernelsPerModule = 10;

std::string NameOf(int kernel) { return "random_" + std::to_string(kernel); }
// SMOLVM_TEST_SEED gives other kernels than those of every day: scripts/soak does.
uint64_t SeedOf(int module, int kernel) {
  const char* given = getenv("SMOLVM_TEST_SEED");
  const uint64_t base = given != nullptr ? strtoull(given, nullptr, 10) : 0;
  return (base + static_cast<uint64_t>(module)) * 1000 + kernel;
}

std::string TextOf(int module, RandomKind kind) {
  std::string text = RandomKernelHeader();
  for (int i = 0; i < kKernelsPerModule; ++i)
    text += RandomKernel(NameOf(i), SeedOf(module, i), kind);
  return text;
}

class RandomKernels : public ProgramTest, public ::testing::WithParamInterface<int> {
 protected:
  // Words that are awkward, and words that are not.
  std::vector<uint32_t> Inputs() const {
    constexpr uint32_t kAwkward[] = {0,          1,          0xffffffff, 0x80000000,
                                     0x7fffffff, 0x7f800000, 0x3f800000, 0x00000001,
                                     0xffc00000, 31,         32,         64};
    std::vector<uint32_t> words(size_t{kThreads} * (kRandomInputs + kRandomScratch));
    uint64_t state = static_cast<uint64_t>(GetParam()) + 1;
    for (uint32_t& word : words) {
      state = state * 6364136223846793005 + 1442695040888963407;
      const auto high = static_cast<uint32_t>(state >> 32);
      word = high % 3 == 0 ? kAwkward[high / 3 % std::size(kAwkward)] : high;
    }
    return words;
  }

  // What the module's kernels leave behind, in inputs and outputs, in blocks of so many threads.
  void Compare(RandomKind kind, std::initializer_list<uint32_t> block_sizes) {
    const std::string text = TextOf(GetParam(), kind);
    ASSERT_EQ(Load(text), "") << text;
    ptx::Module module;
    ptx::Diagnostic diagnostic;
    ASSERT_TRUE(ptx::Parse(text, &module, &diagnostic)) << diagnostic.message;
    const std::vector<uint32_t> inputs = Inputs();
    auto* memory = Allocate<uint32_t>(inputs.size() + kOutputs);
    uint32_t* out = memory + inputs.size();
    const Params params = Params().Add(memory).Add(out);
    const auto result_of = [&](const auto& run) {
      memcpy(memory, inputs.data(), inputs.size() * 4);
      memset(out, 0xab, kOutputs * 4);
      run();
      return std::vector<uint32_t>(memory, out + kOutputs);
    };
    for (int i = 0; i < kKernelsPerModule; ++i) {
      for (const uint32_t threads : block_sizes) {
        const std::string name = NameOf(i);
        const std::vector<uint32_t> compiled =
            result_of([&] { EXPECT_EQ(Run(name, kGrid, threads, params), CUDA_SUCCESS); });
        const std::vector<uint32_t> expected = result_of([&] {
          ptx_interpreter::Interpreter interpreter(module);
          interpreter.AddBuffer(memory, (inputs.size() + kOutputs) * 4);
          ptx_interpreter::Launch launch;
          launch.grid[0] = kGrid;
          launch.block[0] = threads;
          launch.params.assign(params.span().begin(), params.span().end());
          std::string error;
          EXPECT_TRUE(interpreter.Run(name, launch, &error)) << error;
        });
        const auto differs = std::ranges::mismatch(compiled, expected);
        ASSERT_EQ(differs.in1, compiled.end())
            << "word " << differs.in1 - compiled.begin() - static_cast<ptrdiff_t>(inputs.size())
            << " of the outputs (" << kRandomOutputs << " a thread): " << *differs.in1 << ", not "
            << *differs.in2 << "; seed " << SeedOf(GetParam(), i) << ", " << threads
            << " threads a block\n"
            << RandomKernel(name, SeedOf(GetParam(), i), kind);
      }
    }
  }
};

TEST_P(RandomKernels, AgreeWithTheInterpreter) { Compare(RandomKind::kAll, {kRandomThreads}); }
INSTANTIATE_TEST_SUITE_P(Seeds, RandomKernels, ::testing::Range(0, kModules));

// Rows that the lanes fill, and rows that they do not.
using IndependentRandomKernels = RandomKernels;
TEST_P(IndependentRandomKernels, AgreeWithTheInterpreter) {
  Compare(RandomKind::kIndependent, {kRandomThreads, 40});
}
TEST_P(IndependentRandomKernels, AgreeWithTheInterpreterWhenTheyMeet) {
  Compare(RandomKind::kMeeting, {kRandomThreads});
}
INSTANTIATE_TEST_SUITE_P(Seeds, IndependentRandomKernels, ::testing::Range(0, kModules / 2));

// A kernel that is no PTX would test nothing that programs contain.
TEST(RandomKernelText, TheAssemblerTakesIt) {
  const std::string ptxas = SMOLVM_PTXAS;
  if (access(ptxas.c_str(), X_OK) != 0)
    GTEST_SKIP() << "no ptxas here: whether the random kernels are PTX is NOT checked";
  std::string path = testing::TempDir() + "smolvm-random-XXXXXX";
  const int fd = mkstemp(path.data());
  ASSERT_GE(fd, 0);
  close(fd);
  for (const RandomKind kind : {RandomKind::kAll, RandomKind::kIndependent, RandomKind::kMeeting}) {
    std::ofstream(path) << TextOf(kModules - 1, kind);
    const std::string command = fmt::format("'{}' -O0 -arch=sm_90 -o /dev/null '{}'", ptxas, path);
    EXPECT_EQ(std::system(command.c_str()), 0) << "kind " << static_cast<int>(kind);
  }
  std::remove(path.c_str());
}

}  // namespace
}  // namespace smolvm::emulation
