// Random kernels on the compiler against the reference interpreter in tests/support. Seeds are
// fixed: a failure is the same everywhere, and its message has the kernel.
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "host-daemon/emulation/ptx/parse.h"
#include "tests/support/ptx_interpreter.h"
#include "tests/unit/emulation_kernels/random_kernel.h"
#include "tests/unit/emulation_runtime/program_fixture.h"

namespace smolvm::emulation {
namespace {

constexpr uint32_t kGrid = 2;
constexpr uint32_t kThreads = kGrid * kRandomThreads;
constexpr int kModules = 10;
constexpr int kKernelsPerModule = 10;

std::string NameOf(int kernel) { return "random_" + std::to_string(kernel); }
uint64_t SeedOf(int module, int kernel) { return static_cast<uint64_t>(module) * 1000 + kernel; }

std::string TextOf(int module) {
  std::string text = RandomKernelHeader();
  for (int i = 0; i < kKernelsPerModule; ++i) text += RandomKernel(NameOf(i), SeedOf(module, i));
  return text;
}

class RandomKernels : public ProgramTest, public ::testing::WithParamInterface<int> {
 protected:
  // Words that are awkward, and words that are not.
  std::vector<uint32_t> Inputs() const {
    constexpr uint32_t kAwkward[] = {0,          1,          0xffffffff, 0x80000000,
                                     0x7fffffff, 0x7f800000, 0x3f800000, 0x00000001,
                                     0xffc00000, 31,         32,         64};
    std::vector<uint32_t> words(kThreads * kRandomInputs);
    uint64_t state = static_cast<uint64_t>(GetParam()) + 1;
    for (uint32_t& word : words) {
      state = state * 6364136223846793005 + 1442695040888963407;
      const auto high = static_cast<uint32_t>(state >> 32);
      word = high % 3 == 0 ? kAwkward[high / 3 % std::size(kAwkward)] : high;
    }
    return words;
  }
};

TEST_P(RandomKernels, AgreeWithTheInterpreter) {
  const std::string text = TextOf(GetParam());
  ASSERT_EQ(Load(text), "") << text;
  ptx::Module module;
  ptx::Diagnostic diagnostic;
  ASSERT_TRUE(ptx::Parse(text, &module, &diagnostic)) << diagnostic.message;
  const std::vector<uint32_t> inputs = Inputs();
  const uint32_t* in = Upload(inputs);
  constexpr size_t kOutputs = size_t{kThreads} * kRandomOutputs;
  auto* out = Allocate<uint32_t>(kOutputs);
  const Params params = Params().Add(in).Add(out);
  for (int i = 0; i < kKernelsPerModule; ++i) {
    const std::string name = NameOf(i);
    SCOPED_TRACE(name + " of module " + std::to_string(GetParam()));
    memset(out, 0xab, kOutputs * 4);
    ASSERT_EQ(Run(name, kGrid, kRandomThreads, params), CUDA_SUCCESS);
    const std::vector<uint32_t> compiled(out, out + kOutputs);
    memset(out, 0xab, kOutputs * 4);
    ptx_interpreter::Interpreter interpreter(module);
    interpreter.AddBuffer(const_cast<uint32_t*>(in), inputs.size() * 4);
    interpreter.AddBuffer(out, kOutputs * 4);
    ptx_interpreter::Launch launch;
    launch.grid[0] = kGrid;
    launch.block[0] = kRandomThreads;
    launch.params.assign(params.span().begin(), params.span().end());
    std::string error;
    ASSERT_TRUE(interpreter.Run(name, launch, &error)) << error;
    for (size_t at = 0; at < kOutputs; ++at) {
      ASSERT_EQ(compiled[at], out[at])
          << "thread " << at / kRandomOutputs << ", word " << at % kRandomOutputs << ", seed "
          << SeedOf(GetParam(), i) << "\n"
          << RandomKernel(name, SeedOf(GetParam(), i));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomKernels, ::testing::Range(0, kModules));

// A kernel that is no PTX would test nothing that programs contain.
TEST(RandomKernelText, TheAssemblerTakesIt) {
  const std::string ptxas = SMOLVM_PTXAS;
  if (access(ptxas.c_str(), X_OK) != 0)
    GTEST_SKIP() << "no ptxas here: whether the random kernels are PTX is NOT checked";
  std::string path = testing::TempDir() + "smolvm-random-XXXXXX";
  const int fd = mkstemp(path.data());
  ASSERT_GE(fd, 0);
  close(fd);
  for (const int module : {0, kModules - 1}) {
    std::ofstream(path) << TextOf(module);
    const std::string command = "'" + ptxas + "' -O0 -arch=sm_90 -o /dev/null '" + path + "'";
    EXPECT_EQ(std::system(command.c_str()), 0) << "module " << module;
  }
  std::remove(path.c_str());
}

}  // namespace
}  // namespace smolvm::emulation
