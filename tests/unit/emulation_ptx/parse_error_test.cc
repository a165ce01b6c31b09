#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/emulation_ptx/source.h"

namespace smolvm::emulation::ptx {
namespace {

using ::testing::HasSubstr;

struct Row {
  const char* body;
  const char* message;
};

TEST(ParseError, NamesLineAndToken) {
  const Row kRows[] = {
      {"mov.u32 %r1,;", "line 6: unexpected token ';' (expected an operand)"},
      {"\nbogus.u32 %r1, %r2;", "line 7: unknown instruction 'bogus'"},
      {"add.q.u32 %r1, %r2, %r3;", "modifier 'q' has no place in 'add.q.u32'"},
      {"add %r1, %r2, %r3;", "'add' lacks a type"},
      {"add.u32.u32.u32 %r1, %r2, %r3;", "has no place"},
      {"add.u32 %r1, %r2;", "'add.u32': wrong number of operands"},
      {"mov.u32 %zz, 1;", "unknown symbol '%zz'"},
      {"mov.u32 %r99, 1;", "unknown symbol '%r99'"},
      {"bra NOWHERE;", "unknown label 'NOWHERE'"},
      {"bra M; { M: ret; }", "unknown label 'M'"},
      {"mov.u32 %r1, 5", "unexpected token '}' (expected ';')"},
      {"@%r1 ret;", "'%r1' is not a predicate"},
      {"mov.u32 %r1, 99999999999999999999;", "integer literal beyond 64 bits"},
      {"mov.f32 %f1, 0f12;", "malformed floating-point literal"},
      {"mov.u32 %r1, 1/0;", "cannot be evaluated"},
      {"mov.u32 %r1, %tid;", "expected a component of '%tid'"},
      {"ld.global.u32 %r1, [nowhere];", "unknown symbol 'nowhere'"},
      {".reg .b32 %r<5>;", "declared twice"},
      {"L: L: ret;", "'L' is declared twice"},
      {"`", "unexpected character"},
      {"/* never closed", "unterminated comment"},
      {"ret; @%p1 L: ret;", "unknown instruction 'L'"},
      {"{ ret;", "unexpected end of the source"},
      {".shared .align 3 .b8 s[4];", "power of two"},
      {".shared .b32 s[4] = {1};", "initialisers"},
  };
  for (const Row& row : kRows) {
    const Diagnostic error = ErrorOf(Kernel(row.body));
    EXPECT_THAT(error.message, HasSubstr(row.message)) << row.body;
    EXPECT_THAT(error.message, HasSubstr("line "));
    EXPECT_NE(error.code, Diagnostic::Code::kNone);
  }
}

// What ptxas refuses too, and generated code would have to guess about.
TEST(ParseError, VerifiesOperands) {
  const char* const kRows[] = {
      "add.s32 %r1, %f1, %r2;",
      "add.u32 %r1, %rd1, %r2;",
      "add.f32 %f1, %f2, 1;",
      "mov.b32 %r1, 1.0;",
      "mov.u32 %r1, 1.0;",
      "mov.b64 %rd1, 0f3F800000;",
      "ld.global.u32 %f1, [%rd1];",
      "st.global.f32 [%rd1], 5;",
      "shl.b32 %r1, %r2, %rd1;",
      "mul.wide.s32 %rd1, %r1, %rd2;",
      "selp.b32 %r1, %r2, %r2, %r3;",
      "mov.u64 %rd1, %tid.x;",
      "add.u32 %r1, %tid.x, %r2;",
      "mov.u32 %r1, %h1;",
      "ld.global.v2.u32 %r1, [%rd1];",
      "ld.global.v2.u32 {%r1, %r2, %r3}, [%rd1];",
      "ld.global.u32 %r1, [%h1];",
      "ld.global.u32 %r1, [p];",
      "add.u32 5, %r1, %r2;",
      "add.u32 %r1|%p1, %r1, %r2;",
      "setp.eq.u32 %r1, %r1, %r2;",
      "mov.b64 {%r1, %h1}, %rd1;",
      "add.u32 %r1, !%p1, %r2;",
      "cvt.u32 %r1, %r2;",
      "add.u32 %r1.b0, %r1, %r2;",
      "call k, (%rd1);",
      "call %rd1;",
      // A cache policy stands where its modifier is, and nowhere else.
      "ld.global.b32 %r1, [%rd1], %rd2;",
      "ld.global.L2::cache_hint.b32 %r1, [%rd1];",
      "ld.global.L2::cache_hint.b32 %r1, [%rd1], %r2;",
      "ld.global.L2::cache_hint.b32 %r1, [%rd1], %d2;",
      "st.global.b32 [%rd1], %r1, %rd2;",
      "st.global.b32 [%rd1].unified, %r1;",
      "atom.global.add.u32 %r1, [%rd1], %r2, %rd2;",
      "red.global.add.u32 [%rd1], %r2, %r3;",
      "cp.async.ca.shared.global [%rd1], [%rd2], 16, 8, %rd3;",
      "cp.async.ca.shared.global [%rd1], [%rd2], 16, %rd3;",
      "cp.async.ca.shared.global [%rd1], [%rd2], 16, %f3;",
      "cp.async.ca.shared.global [%rd1], [%rd2], %r1;",
      "cp.async.ca.global.shared [%rd1], [%rd2], 16;",
      "cp.async.shared.global [%rd1], [%rd2], 16;",
      "cp.async.ca.shared.global.L2::cache_hint [%rd1], [%rd2], 16;",
      "createpolicy.fractional.L2::evict_last.b64 %r1, 0.5;",
      "createpolicy.fractional.L2::evict_last.b64 %p1;",
      // Operands that a modifier asks for.
      "setp.eq.u32 %p1, %r1, %r2, %p2;",
      "setp.eq.and.u32 %p1, %r1, %r2;",
      "set.eq.u32.u32 %r1, %r2, %r3, %p2;",
      "lop3.or.b32 %r1|%p1, %r2, %r3, %r4, 5;",
      "lop3.b32 %r1, %r2, %r3, %r4, 5, %p1;",
      "vote.sync.all.pred %p1, %p2;",
      "atom.global.cas.b32 %r1, [%rd1], %r2;",
      // An mbarrier is in shared memory, or at a generic address: an offset in another space would
      // be taken for one in the block's window.
      "{ .local .b64 x; mbarrier.init.local.b64 [x], 1; }",
      "{ .local .b64 x; mbarrier.inval.local.b64 [x]; }",
      "{ .local .b64 x; mbarrier.arrive.shared.b64 %rd1, [x]; }",
      "{ .local .b64 x; mbarrier.arrive.local.b64 %rd1, [x]; }",
      "{ .local .b64 x; mbarrier.arrive_drop.shared::cluster.b64 _, [x]; }",
      "{ .local .b64 x; mbarrier.test_wait.shared.b64 %p1, [x], %rd1; }",
      "{ .local .b64 x; mbarrier.try_wait.parity.local.b64 %p1, [x], 0; }",
      "{ .local .b64 x; cp.async.mbarrier.arrive.noinc.local.b64 [x]; }",
      "{ .local .b64 x; cp.async.mbarrier.arrive.shared.b64 [x]; }",
      "mbarrier.init.param.b64 [p], 1;",
      "mbarrier.arrive.shared.b64 %rd1, [p];",
      "mbarrier.init.global.b64 [%rd1], 1;",
      "mbarrier.test_wait.b64 %p1, %rd1, %rd2;",
      "mbarrier.test_wait.b64 %rd1, [%rd1], %rd2;",
      "mbarrier.test_wait.b64 %p1, [%rd1], [%rd2];",
      "mbarrier.test_wait.b64 [%rd1], %rd1, %rd2;",
      "mbarrier.arrive.b64 {%rd1, %rd2}, [%rd3];",
      "mbarrier.arrive.b64 %rd1, [%rd2], [%rd3];",
      "mbarrier.arrive.b64 %rd1;",
      // Vectors as long as they are said to be, and arrays where there are some.
      "mov.v2.b32 {%r1, %r2}, {%r3, %r4, %r5};",
      "mov.v2.b32 %rd1, {%r1, %r2};",
      "mov.v2.b32 {%r1, %r2}, %rd1;",
      "mov.v4.u32 {%r1, %r2}, %tid;",
      "mov.v2.pred {%p1, %p2}, {%p3, %p4};",
      "{ .reg .v4 .f32 v; mov.f32 v, %f1; }",
      "{ .reg .v4 .f32 %v<3>; mov.f32 %f1, %v3.x; }",
      "ld.global.b32 %r1, p[1];",
      "{ .shared .b32 s[4]; ld.shared.b32 %r1, s[%f1]; }",
      "{ .shared .b32 s[4]; ld.shared.b32 %r1, s[%p1]; }",
      "{ .shared .b32 s[4]; ld.shared.b32 %r1, [s[1]]; }",
      "{ .shared .b32 s; ld.shared.b32 %r1, s[0]; }",
  };
  for (const char* body : kRows) ErrorOf(Kernel(body));
}

// Each row is refused by ptxas too.
TEST(ParseError, ImmediateOutOfRange) {
  const Row kRows[] = {
      {"bar.sync 16;", "line 6: 'bar.sync': barrier number '16' is not in 0..15"},
      {"bar.sync -1;", "barrier number '-1' is not in 0..15"},
      {"\nbarrier.sync 16;", "line 7: 'barrier.sync': barrier number '16'"},
      {"barrier.cta.sync.aligned 99;", "barrier number '99'"},
      {"bar.arrive 16, 32;", "barrier number '16'"},
      {"bar.red.popc.u32 %r1, 16, %p1;", "barrier number '16'"},
      {"barrier.red.and.pred %p1, 16, 64, %p1;", "barrier number '16'"},
      {"bar.sync 1, 33;", "thread count '33' is no multiple of the warp size"},
      {"bar.sync %r1, 33;", "thread count '33'"},
      {"bar.red.popc.u32 %r1, 1, 33, %p1;", "thread count '33'"},
      {"bar.arrive 1, 0;", "thread count '0' is not allowed"},
      {"bfe.u32 %r1, %r2, 256, 1;", "bit position '256' is not in 0..255"},
      {"bfi.b64 %rd1, %rd2, %rd3, 0, 256;", "bit length '256' is not in 0..255"},
      {"cp.async.ca.shared.global [%rd1], [%rd2], 3;", "size '3' is not 4, 8 or 16"},
      {"cp.async.cg.shared.global [%rd1], [%rd2], 8;", "size '8' is not 16"},
      {"cp.async.ca.shared.global [%rd1], [%rd2], 4, 5;", "source size '5' is not in 0..4"},
      {"discard.global.L2 [%rd1], 64;", "size '64' is not 128"},
      {"applypriority.global.L2::evict_normal [%rd1], 64;", "size '64' is not 128"},
      {"mbarrier.try_wait.parity.shared.b64 %p1, [%rd1], 7;", "parity '7' is not in 0..1"},
      {"mbarrier.arrive.shared.b64 %rd1, [%rd2], 0;", "count '0' is not allowed"},
      {"alloca.u64 %rd1, 16, 3;", "alignment '3' is no power of two"},
      {"pmevent 16;", "event '16' is not in 0..15"},
  };
  for (const Row& row : kRows) {
    EXPECT_THAT(ErrorOf(Kernel(row.body)).message, HasSubstr(row.message)) << row.body;
  }
}

TEST(ParseError, ImmediateInRange) {
  const char* const kRows[] = {
      "bar.sync 15;",
      "bar.sync 1, 0;",
      "bar.sync 1, 64;",
      "bar.sync 1, 2048;",
      "bar.sync %r1, %r2;",
      "bar.arrive 15, 32;",
      "bar.red.popc.u32 %r1, 15, %p1;",
      // The last operand is the predicate, not a count.
      "bar.red.popc.u32 %r1, 0, 1;",
      "bfe.u32 %r1, %r2, 255, 255;",
      "shfl.sync.idx.b32 %r1, %r2, 33, 0xffff, -1;",
      "prmt.b32 %r1, %r2, %r3, 0x12345;",
      "lop3.b32 %r1, %r2, %r3, %r4, 256;",
      "shl.b32 %r1, %r2, 77;",
      "cp.async.ca.shared.global [%rd1], [%rd2], 8;",
      "cp.async.cg.shared.global [%rd1], [%rd2], 16, 0;",
      "cp.async.ca.shared.global [%rd1], [%rd2], 4, %r1;",
      "discard.global.L2 [%rd1], 128;",
      "mbarrier.try_wait.parity.shared.b64 %p1, [%rd1], 1, 0x989680;",
      "mbarrier.test_wait.shared.b64 %p1, [%rd1], %rd2;",
      "mbarrier.arrive.shared.b64 %rd1, [%rd2], 1;",
      "mbarrier.arrive.expect_tx.shared.b64 %rd1, [%rd2], 0;",
      "alloca.u64 %rd1, 16, 8;",
      "pmevent 15;",
      "pmevent.mask 0xffff;",
  };
  for (const char* body : kRows) ParseOrFail(Kernel(body));
}

TEST(ParseError, RefusesVersionsAndTargets) {
  EXPECT_EQ(ErrorOf(".version 9.1\n.target sm_90\n").code, Diagnostic::Code::kUnsupportedVersion);
  EXPECT_EQ(ErrorOf(".version 9.0\n.target sm_999\n").code, Diagnostic::Code::kUnsupportedTarget);
  EXPECT_EQ(ErrorOf(".version 9.0\n.target gfx90\n").code, Diagnostic::Code::kUnsupportedTarget);
  EXPECT_EQ(ErrorOf(".target sm_90\n").code, Diagnostic::Code::kSyntax);
  EXPECT_EQ(ErrorOf("").code, Diagnostic::Code::kSyntax);
  EXPECT_EQ(ErrorOf(".version 9.0\n.target sm_90\n.address_size 32\n").code,
            Diagnostic::Code::kSyntax);
}

TEST(ParseError, RefusesConflictingDeclarations) {
  const std::string header(kHeader);
  EXPECT_EQ(ErrorOf(header + ".global .u32 x; .global .u32 x;").code, Diagnostic::Code::kDuplicate);
  EXPECT_EQ(ErrorOf(header + ".func f() { ret; } .func f() { ret; }").code,
            Diagnostic::Code::kDuplicate);
  ErrorOf(header + ".func f(); .func f(.param .b32 x) { ret; }");
  ErrorOf(header + ".global .u64 x = nowhere;");
  ErrorOf(header + ".global .u8 x[2] = {1, 2, 3};");
  ErrorOf(header + ".global .u8 x[2][2] = {{1, 2, 3}};");
  ErrorOf(header + ".global .f32 x = 1;");
  ErrorOf(header + ".entry k(.param .b8 x[32765]) { ret; }");
  ErrorOf(header + ".extern .visible .global .u32 x;");
}

// Hostile nesting, sizes and counts end in an error, soon.
TEST(ParseError, IsBounded) {
  const std::string header(kHeader);
  ErrorOf(Kernel(std::string(100'000, '{')));
  ErrorOf(Kernel("mov.u32 %r1, " + std::string(100'000, '(') + "1;"));
  ErrorOf(Kernel("mov.u32 %r1, " + std::string(100'000, '-') + "1;"));
  std::string conditional = "mov.u32 %r1, ";
  for (int i = 0; i < 1000; ++i) conditional += "1?";
  ErrorOf(Kernel(conditional + "1;"));
  EXPECT_EQ(ErrorOf(header + ".global .u8 x[1000000000000][1000000000000];").code,
            Diagnostic::Code::kSyntax);
  EXPECT_EQ(ErrorOf(header + ".global .u8 x[2][1000000000] = {{}, {1}};").code,
            Diagnostic::Code::kTooLarge);
  std::string dimensions = ".global .u8 x";
  for (int i = 0; i < 100; ++i) dimensions += "[1]";
  ErrorOf(header + dimensions + ";");
  std::string vector = "mov.b64 {";
  for (int i = 0; i < 10'000; ++i) vector += "%r1, ";
  ErrorOf(Kernel(vector + "%r1}, %rd1;"));
  std::string targets = "L: T: .branchtargets L";
  for (int i = 0; i < 10'000; ++i) targets += ", L";
  targets += ";\n";
  for (int i = 0; i < 10'000; ++i) targets += "brx.idx %r1, T;\n";
  EXPECT_EQ(ErrorOf(Kernel(targets)).code, Diagnostic::Code::kTooLarge);
}

}  // namespace
}  // namespace smolvm::emulation::ptx
