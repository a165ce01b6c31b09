// What lets a check be left out: each claim is tried where it is just true and just not.
#include <gtest/gtest.h>

#include "host-daemon/emulation/codegen/analysis.h"
#include "host-daemon/emulation/codegen/emitter.h"
#include "host-daemon/emulation/codegen/param_use.h"
#include "host-daemon/emulation/ptx/parse.h"

namespace smolvm::emulation::codegen {
namespace {

ptx::Variable Array(uint64_t bytes, uint32_t alignment) {
  ptx::Variable variable;
  variable.bytes = bytes;
  variable.alignment = alignment;
  return variable;
}

TEST(StaysInside, IsTrueUpToTheLastByteAlone) {
  EXPECT_TRUE(StaysInside(Array(16, 8), 0, 8, 8));
  EXPECT_TRUE(StaysInside(Array(16, 8), 8, 8, 8));
  EXPECT_FALSE(StaysInside(Array(16, 8), 16, 8, 8));
  EXPECT_FALSE(StaysInside(Array(15, 8), 8, 8, 8));
  EXPECT_FALSE(StaysInside(Array(16, 8), -8, 8, 8));
  EXPECT_FALSE(StaysInside(Array(16, 8), INT64_MIN, 8, 8));
  EXPECT_FALSE(StaysInside(Array(16, 8), INT64_MAX - 7, 8, 8));
  EXPECT_FALSE(StaysInside(Array(0, 8), 0, 8, 8));
  EXPECT_TRUE(StaysInside(Array(8, 8), 8, 0, 8));
}

TEST(StaysInside, IsFalseWhereTheAlignmentIsNotKnown) {
  EXPECT_FALSE(StaysInside(Array(16, 4), 0, 8, 8));
  EXPECT_FALSE(StaysInside(Array(16, 8), 4, 8, 8));
  EXPECT_TRUE(StaysInside(Array(16, 4), 4, 8, 4));
  EXPECT_TRUE(StaysInside(Array(16, 1), 3, 8, 1));
}

TEST(StaysInside, IsFalseOfArraysWithoutASize) {
  ptx::Variable unsized = Array(0, 8);
  unsized.is_unsized = true;
  EXPECT_FALSE(StaysInside(unsized, 0, 0, 8));
}

struct Analysed {
  ptx::Module module;
  KernelFacts facts;
};
Analysed Analyse(const std::string& functions, const std::string& body) {
  const std::string text = ".version 8.0\n.target sm_90\n.address_size 64\n" + functions +
                           ".visible .entry k()\n{ .reg .b32 %r<4>; .reg .b64 %d<4>;\n" + body +
                           "\nret; }\n";
  Analysed analysed;
  ptx::Diagnostic diagnostic;
  std::string error;
  const bool is_parsed = ptx::Parse(text, &analysed.module, &diagnostic);
  EXPECT_TRUE(is_parsed) << diagnostic.message;
  if (!is_parsed) return analysed;
  for (uint32_t k = 0; k < analysed.module.functions.size(); ++k) {
    if (!analysed.module.functions[k].is_entry) continue;
    EXPECT_TRUE(AnalyseKernel(analysed.module, k, &analysed.facts, &error)) << error;
  }
  return analysed;
}

constexpr const char* kLeaf =
    ".func (.param .b32 r) leaf(.param .b32 v) { .local .align 16 .b8 a[100]; ret; }\n";

TEST(Frames, AreBoundedByTheirSumWhereCallsAreAChain) {
  const Analysed chain =
      Analyse(std::string(kLeaf) +
                  ".func middle() { .local .align 4 .b8 b[20];\n"
                  "{ .param .b32 q; .param .b32 s; call (s), leaf, (q); } ret; }\n",
              "call middle;");
  EXPECT_FALSE(chain.facts.unbounded_stack);
  uint64_t sum = 0;
  for (const FunctionFacts& f : chain.facts.functions) sum += f.frame_bytes;
  EXPECT_EQ(chain.facts.window_bytes, sum);
  // 112 for the leaf; 20 and two .param variables of 4, then two blocks of 16.
  EXPECT_EQ(sum, 112u + 64u);
  EXPECT_EQ(chain.facts.local_bytes, 112u + 32u);
}

TEST(Frames, AreNotBoundedWhereTheProgramDecides) {
  EXPECT_TRUE(Analyse(".func self() { call self; ret; }\n", "call self;").facts.unbounded_stack);
  EXPECT_TRUE(
      Analyse(".func b(); .func a() { call b; ret; } .func b() { call a; ret; }\n", "call a;")
          .facts.unbounded_stack);
  EXPECT_TRUE(Analyse("", "mov.u32 %r1, 16; alloca.u32 %r2, %r1;").facts.unbounded_stack);
  EXPECT_TRUE(Analyse("", "mov.u32 %r1, 16; stackrestore.u32 %r1;").facts.unbounded_stack);
  EXPECT_TRUE(Analyse(".func moves() { .reg .b32 %s; mov.u32 %s, 64; stackrestore.u32 %s; ret; }\n",
                      "call moves;")
                  .facts.unbounded_stack);
  EXPECT_TRUE(
      Analyse(std::string(kLeaf), "p: .callprototype _ ();\n mov.b64 %d1, leaf; call %d1, (), p;")
          .facts.unbounded_stack);
  EXPECT_FALSE(Analyse(std::string(kLeaf), "").facts.unbounded_stack);
}

// Whether the variable `x` of the body may be read before it is written.
bool ReadsUnwritten(const std::string& body) {
  const Analysed analysed = Analyse(
      ".func takes(.param .align 8 .b8 v[8]) { ret; }\n"
      ".func (.param .align 8 .b8 v[8]) gives() { ret; }\n",
      ".param .align 8 .b8 x[8]; .reg .pred %p;\n" + body);
  const ptx::Function& kernel = analysed.module.functions[analysed.facts.kernel];
  const std::vector<bool> unwritten = ReadUnwritten(kernel, analysed.facts.functions[0].cfg);
  for (size_t k = 0; k < kernel.variables.size(); ++k) {
    if (kernel.variables[k].name == "x") return unwritten[k];
  }
  ADD_FAILURE() << "no x";
  return false;
}

TEST(ReadUnwritten, IsFalseWhereWritesCoverWhatIsRead) {
  EXPECT_FALSE(ReadsUnwritten(""));
  EXPECT_FALSE(ReadsUnwritten("st.param.b64 [x], %d1; ld.param.b64 %d2, [x];"));
  EXPECT_FALSE(ReadsUnwritten("st.param.b32 [x+4], %r1; ld.param.b32 %r2, [x+4];"));
  EXPECT_FALSE(
      ReadsUnwritten("st.param.b32 [x], %r1; st.param.b32 [x+4], %r1; "
                     "ld.param.b64 %d2, [x];"));
}

TEST(ReadUnwritten, IsTrueWhereSomeOfItMayNotBe) {
  EXPECT_TRUE(ReadsUnwritten("ld.param.b64 %d2, [x];"));
  EXPECT_TRUE(ReadsUnwritten("ld.param.b64 %d2, [x]; st.param.b64 [x], %d1;"));
  EXPECT_TRUE(ReadsUnwritten("st.param.b32 [x], %r1; ld.param.b64 %d2, [x];"));
  EXPECT_TRUE(ReadsUnwritten("@%p st.param.b64 [x], %d1; ld.param.b64 %d2, [x];"));
  EXPECT_TRUE(ReadsUnwritten("@%p bra L; st.param.b64 [x], %d1; L: ld.param.b64 %d2, [x];"));
  EXPECT_TRUE(ReadsUnwritten("call takes, (x);"));
  EXPECT_TRUE(ReadsUnwritten("st.param.b32 [x], %r1; call takes, (x);"));
}

}  // namespace
}  // namespace smolvm::emulation::codegen
