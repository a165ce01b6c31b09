// Kernels that try to leave their memory. None of them may reach another thread's window, the
// parameters or the machine's stack.
#include <fmt/format.h>

#include "tests/unit/emulation_kernels/feature_fixture.h"

namespace smolvm::emulation {
namespace {

constexpr const char* kHeader = ".version 8.3\n.target sm_90\n.address_size 64\n";

class Isolation : public FeatureTest {
 protected:
  // A kernel k(out) with registers, behind `functions`.
  std::string LoadKernel(const std::string& functions, const std::string& body) {
    return Load(std::string(kHeader) + functions +
                ".visible .entry k(.param .u64 out)\n{\n.reg .pred %p;\n.reg .b32 %r<8>;\n"
                ".reg .b64 %d<8>;\nld.param.u64 %d1, [out];\n" +
                body + "\nret;\n}\n");
  }
  CUresult RunKernel(const void* out, uint32_t threads = 1) {
    return Run("k", 1, threads, Params().Add(out));
  }
};

// The two signatures once had one hash, and the callee's parameters lay on the machine's stack.
TEST_F(Isolation, AForgedLayoutIsNotCalled) {
  std::string params;
  int index = 0;
  for (const int bytes : {160, 50, 33, 105, 17, 56, 217, 163, 24, 27, 125, 248, 29, 95, 191, 33})
    params += fmt::format("{}.param .align 1 .b8 p{}[{}]", index == 0 ? "" : ", ", index, bytes),
        ++index;
  ASSERT_EQ(LoadKernel(".global .align 8 .u64 out_at[1];\n"
                       ".func (.param .align 16 .b8 r[2448]) evil(" +
                           params +
                           ")\n{ .reg .b64 %x<3>; ld.global.u64 %x1, [out_at];\n"
                           "ld.param.b64 %x2, [p0+8]; st.global.u64 [%x1], %x2;\n"
                           "st.param.b64 [r+80], %x2; ret; }\n"
                           ".global .align 8 .u64 fp[1] = {evil};\n",
                       "st.global.u64 [out_at], %d1;\n"
                       "ld.volatile.global.u64 %d2, [fp];\n"
                       "{ .param .b32 s; proto: .callprototype (.param .b32 _) _ ();\n"
                       "call (s), %d2, (), proto; }"),
            "");
  auto* out = Upload<uint64_t>({7});
  EXPECT_EQ(RunKernel(out), CUDA_ERROR_INVALID_PC);
  EXPECT_EQ(*out, 7u);
}

// Alike but for one alignment, and but for where one list ends and the other begins.
TEST_F(Isolation, ALayoutThatIsNearlyTheSameIsNotCalled) {
  for (const char* prototype :
       {"(.param .b32 _) _ (.param .b32 _, .param .b32 _)",
        "(.param .align 8 .b8 _[8]) _ (.param .b32 _)", "(.param .b32 _, .param .b32 _) _ ()"}) {
    SCOPED_TRACE(prototype);
    const bool two =
        std::string_view(prototype).find("_, .param .b32 _)") != std::string_view::npos;
    const std::string call =
        two && prototype[1] == '.' && std::string_view(prototype).ends_with("_)")
            ? "call (a), %d2, (b, b), proto;"
            : "call (a, a), %d2, (), proto;";
    const std::string body = fmt::format(
        "mov.u64 %d2, target;\n{{ .param .align 8 .b8 a[8]; .param .b32 b;\n"
        "proto: .callprototype {};\n{} }}\nst.global.u64 [%d1], 1;",
        prototype,
        std::string_view(prototype).find("[8]") != std::string_view::npos
            ? "call (a), %d2, (b), proto;"
            : call);
    const std::string log = LoadKernel(
        ".func (.param .b32 r) target(.param .b32 v) { st.param.b32 [r], 5; ret; }\n", body);
    if (!log.empty()) continue;  // refused before it runs: good as well
    auto* out = Upload<uint64_t>({0});
    EXPECT_EQ(RunKernel(out), CUDA_ERROR_INVALID_PC);
    EXPECT_EQ(*out, 0u);
    TearDown();
    allocations_.clear();
  }
}

// Arguments of system calls are as wide as the system call says, whatever is passed for them.
TEST_F(Isolation, ASystemCallReadsNoMoreThanItIsGiven) {
  const std::string externs =
      ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n"
      ".extern .func (.param .b64 r) malloc(.param .b64 n);\n";
  for (const char* body : {
           "{ .param .align 1 .b8 f[1]; .param .b64 a; .param .b32 r;\n"
           "st.param.b64 [a], 0; call (r), vprintf, (f, a); }",
           "{ .param .b64 f; .param .align 1 .b8 a[4]; .param .b32 r;\n"
           "st.param.b64 [f], 0; call (r), vprintf, (f, a); }",
           "{ .param .b64 n; .param .align 1 .b8 r[7];\n"
           "st.param.b64 [n], 8; call (r), malloc, (n); }",
       }) {
    const std::string log = LoadKernel(externs, body);
    auto* out = Upload<uint64_t>({0});
    if (log.empty()) {
      EXPECT_NE(RunKernel(out), CUDA_SUCCESS) << body;
    }
  }
}

// What a call is passed may be smaller than the callee's parameter; then the rest is the callee's
// own, and never what lies beside it on a stack.
TEST_F(Isolation, AShortArgumentBringsNothingAlong) {
  const std::string log = LoadKernel(
      ".func f(.param .align 8 .b8 v[64], .param .b64 to)\n"
      "{ .reg .b64 %x<3>; ld.param.b64 %x1, [to]; ld.param.b64 %x2, [v+56];\n"
      "st.global.u64 [%x1], %x2; ret; }\n",
      "{ .param .align 8 .b8 v[8]; .param .b64 to; st.param.b64 [v], %d1;\n"
      "st.param.b64 [to], %d1; call f, (v, to); }");
  if (!log.empty()) return;  // ptxas refuses it, too
  auto* out = Upload<uint64_t>({0});
  ASSERT_EQ(RunKernel(out), CUDA_SUCCESS);
  // Numbers of this process's own (a stack, code) have the high bits of its addresses.
  EXPECT_NE(*out >> 40, reinterpret_cast<uint64_t>(&log) >> 40);
}

TEST_F(Isolation, AFrameThatStackrestoreMovedIsChecked) {
  ASSERT_EQ(LoadKernel(".func (.param .b32 r) f(.param .b32 v)\n"
                       "{ .local .align 16 .b8 a[1024]; .reg .b32 %x<3>; ld.param.u32 %x1, [v];\n"
                       "st.local.b32 [a], %x1; st.local.b32 [a+64], %x1;\n"
                       "ld.local.b32 %x2, [a+128]; st.param.b32 [r], %x2; ret; }\n",
                       ".local .align 16 .b8 mine[64];\nmov.u32 %r1, %tid.x;\n"
                       "st.local.u32 [mine], 1111;\nbar.sync 0;\n"
                       "setp.ne.u32 %p, %r1, 0;\n@%p bra W;\n"
                       "stacksave.u32 %r2;\nadd.u32 %r2, %r2, 1048576;\nstackrestore.u32 %r2;\n"
                       "{ .param .b32 q; .param .b32 s; st.param.b32 [q], 0x6666;\n"
                       "call (s), f, (q); }\n"
                       "W: bar.sync 0;\nld.local.u32 %r4, [mine];\nmul.wide.u32 %d2, %r1, 4;\n"
                       "add.s64 %d2, %d1, %d2;\nst.global.u32 [%d2], %r4;"),
            "");
  uint32_t* out = Zeroes<uint32_t>(64);
  EXPECT_EQ(RunKernel(out, 64), CUDA_ERROR_HARDWARE_STACK_ERROR);
}

// At every place that it may be moved to, another thread keeps its variable.
TEST_F(Isolation, AMovedStackStaysInItsThreadsWindow) {
  ASSERT_EQ(Load(std::string(kHeader) +
                 ".func (.param .b32 r) f(.param .align 8 .b8 v[64])\n"
                 "{ .local .align 16 .b8 a[256]; .reg .b32 %x<3>; .reg .b64 %y<3>;\n"
                 "ld.param.u32 %x1, [v]; st.local.b32 [a], %x1; st.local.b32 [a+252], %x1;\n"
                 "mov.b64 %y1, v; st.local.b32 [%y1+60], %x1; st.param.b32 [r], %x1; ret; }\n"
                 ".visible .entry k(.param .u64 out, .param .u32 to)\n"
                 "{ .reg .pred %p; .reg .b32 %r<8>; .reg .b64 %d<8>;\n"
                 ".local .align 16 .b8 mine[64];\n"
                 "ld.param.u64 %d1, [out]; ld.param.u32 %r2, [to]; mov.u32 %r1, %tid.x;\n"
                 "st.local.u32 [mine+60], 1111; bar.sync 0;\n"
                 "setp.ne.u32 %p, %r1, 0; @%p bra W;\n"
                 "stackrestore.u32 %r2;\n"
                 "{ .param .align 8 .b8 q[64]; .param .b32 s; st.param.b32 [q], 0x6666;\n"
                 "call (s), f, (q); }\n"
                 "W: bar.sync 0; ld.local.u32 %r4, [mine+60]; mul.wide.u32 %d2, %r1, 4;\n"
                 "add.s64 %d2, %d1, %d2; st.global.u32 [%d2], %r4; ret; }\n"),
            "");
  for (uint32_t to = 0; to < 4096; to += 36) {
    uint32_t* out = Zeroes<uint32_t>(32);
    const CUresult result = Run("k", 1, 32, Params().Add(out).Add(to));
    if (result == CUDA_ERROR_HARDWARE_STACK_ERROR) continue;
    ASSERT_EQ(result, CUDA_SUCCESS) << to;
    for (int k = 1; k < 32; ++k) ASSERT_EQ(out[k], 1111u) << to << " thread " << k;
  }
}

TEST_F(Isolation, ParametersOfAKernelAreNeverWritten) {
  for (const char* write : {
           "mbarrier.init.b64 [%d3], 5;",
           "mbarrier.inval.b64 [%d3];",
           "mbarrier.arrive.b64 %d4, [%d3];",
           "mbarrier.arrive_drop.b64 %d4, [%d3];",
           "cp.async.mbarrier.arrive.b64 [%d3];",
           "cp.async.mbarrier.arrive.noinc.b64 [%d3];",
           "st.u64 [%d3], 1;",
           "st.volatile.u64 [%d3], 1;",
           "st.v2.u32 [%d3], {%r1, %r2};",
           "atom.add.u64 %d4, [%d3], 1;",
           "atom.cas.b64 %d4, [%d3], 0, 1;",
           "red.add.u64 [%d3], 1;",
       }) {
    SCOPED_TRACE(write);
    ASSERT_EQ(LoadKernel("", "mov.u64 %d2, out;\ncvta.param.u64 %d3, %d2;\n" + std::string(write)),
              "");
    auto* out = Upload<uint64_t>({0});
    EXPECT_EQ(RunKernel(out), CUDA_ERROR_ILLEGAL_ADDRESS);
  }
}

// Blocks of arguments are part of a thread's window, whose size is bounded when a kernel is loaded.
TEST_F(Isolation, SignaturesAreBounded) {
  const auto takes = [&](const std::string& bytes) {
    return LoadKernel(".func f(.param .align 4 .b8 v[" + bytes + "]) { ret; }\n",
                      "{ .param .align 4 .b8 v[16]; call f, (v); }");
  };
  EXPECT_NE(takes("32768"), "");
  EXPECT_NE(takes("1099511627776"), "");
  EXPECT_NE(LoadKernel(".func (.param .align 4 .b8 r[40000]) f() { ret; }\n", ""), "");
  EXPECT_NE(LoadKernel("", "p: .callprototype _ (.param .align 4 .b8 _[40000]);"), "");
}

}  // namespace
}  // namespace smolvm::emulation
