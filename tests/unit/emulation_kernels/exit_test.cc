// A process may end while another thread of it compiles.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <thread>

#include "host-daemon/emulation/codegen/compiler.h"
#include "host-daemon/emulation/ptx/parse.h"
#include "tests/unit/emulation_kernels/random_kernel.h"

namespace smolvm::emulation {
namespace {

[[noreturn]] void ExitWhileCompiling() {
  static const std::string text =
      RandomKernelHeader() + RandomKernel("busy", 7, RandomKind::kIndependent);
  static ptx::Module module;
  static codegen::KernelFacts facts;
  ptx::Diagnostic diagnostic;
  std::string error;
  const auto compile = [](unsigned lanes) {
    codegen::CompiledKernel compiled;
    std::string ignored;
    return codegen::Compile(module, facts, {size_t{256} << 20, 90, lanes}, &compiled, &ignored);
  };
  const bool is_good =
      ptx::Parse(text, &module, &diagnostic) &&
      codegen::AnalyseKernel(module, static_cast<uint32_t>(module.functions.size() - 1), &facts,
                             &error) &&
      compile(1);
  if (!is_good) abort();
  std::thread([compile] {
    while (compile(codegen::LanesOfHost())) {
    }
    for (;;) pause();
  }).detach();
  usleep(30'000);
  exit(0);
}

TEST(Exit, MayComeWhileAKernelIsCompiled) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  for (int i = 0; i < 5; ++i) EXPECT_EXIT(ExitWhileCompiling(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace smolvm::emulation
