// The reference interpreter against values from the PTX ISA and from the host's own arithmetic: it
// is the oracle of the kernel compiler's tests, and so must be right itself.
#include <gtest/gtest.h>

#include <bit>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "tests/support/ptx_arithmetic.h"
#include "tests/support/ptx_interpreter.h"
#include "tests/unit/emulation_ptx/source.h"

namespace smolvm::ptx_interpreter {
namespace {

using emulation::ptx::FirstOf;
using emulation::ptx::kHeader;
using emulation::ptx::Module;
using emulation::ptx::ParseOrFail;

uint64_t Evaluated(const std::string& instruction, std::vector<uint64_t> sources) {
  const Instruction i = FirstOf(instruction);
  Carry carry;
  Value value;
  EXPECT_TRUE(Evaluate(i, sources, &carry, &value)) << instruction;
  return value.bits;
}

uint32_t F(float value) { return std::bit_cast<uint32_t>(value); }

struct Row {
  const char* instruction;
  std::vector<uint64_t> sources;
  uint64_t result;
};

void Check(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    EXPECT_EQ(Evaluated(row.instruction, row.sources), row.result) << row.instruction;
  }
}

TEST(Evaluate, ShiftsClamp) {
  Check({
      {"shl.b32 %r1, %r2, %r3;", {1, 31}, 0x80000000},
      {"shl.b32 %r1, %r2, %r3;", {1, 32}, 0},
      {"shr.u32 %r1, %r2, %r3;", {0x80000000, 0xFFFFFFFF}, 0},
      {"shr.s32 %r1, %r2, %r3;", {0x80000000, 40}, 0xFFFFFFFF},
      {"shr.s64 %rd1, %rd2, %r3;", {uint64_t{1} << 63, 64}, UINT64_MAX},
      {"shl.b64 %rd1, %rd2, %r3;", {1, 64}, 0},
      {"shf.l.wrap.b32 %r1, %r2, %r3, %r4;", {0x80000000, 0x1, 33}, 0x3},
      {"shf.l.clamp.b32 %r1, %r2, %r3, %r4;", {0x1234, 0x1, 33}, 0x1234},
      {"shf.r.wrap.b32 %r1, %r2, %r3, %r4;", {0x80000000, 0x1, 4}, 0x18000000},
      {"shf.r.clamp.b32 %r1, %r2, %r3, %r4;", {0x1234, 0x77, 32}, 0x77},
  });
}

TEST(Evaluate, BitFields) {
  Check({
      {"bfe.u32 %r1, %r2, 4, 8;", {0xABCDE, 4, 8}, 0xCD},
      {"bfe.s32 %r1, %r2, 4, 8;", {0xABCDE, 4, 8}, 0xFFFFFFCD},
      {"bfe.s32 %r1, %r2, 0, 0;", {0xFFFFFFFF, 0, 0}, 0},
      {"bfe.s32 %r1, %r2, 28, 30;", {0x80000000, 28, 30}, 0xFFFFFFF8},
      {"bfe.u32 %r1, %r2, 40, 8;", {0xFFFFFFFF, 40, 8}, 0},
      {"bfi.b32 %r1, %r2, %r3, 8, 8;", {0xFF, 0, 8, 8}, 0xFF00},
      {"bfi.b32 %r1, %r2, %r3, 28, 8;", {0xFF, 1, 28, 8}, 0xF0000001},
      {"bfind.u32 %r1, %r2;", {0x100}, 8},
      {"bfind.u32 %r1, %r2;", {0}, 0xFFFFFFFF},
      {"bfind.s32 %r1, %r2;", {0xFFFFFFFE}, 0},
      {"bfind.s32 %r1, %r2;", {0xFFFFFFFF}, 0xFFFFFFFF},
      {"bfind.shiftamt.u32 %r1, %r2;", {0x100}, 23},
      {"bmsk.wrap.b32 %r1, %r2, %r3;", {4, 8}, 0xFF0},
      {"bmsk.clamp.b32 %r1, %r2, %r3;", {4, 100}, 0xFFFFFFF0},
      {"bmsk.clamp.b32 %r1, %r2, %r3;", {32, 1}, 0},
      {"szext.wrap.s32 %r1, %r2, %r3;", {0x80, 8}, 0xFFFFFF80},
      {"szext.wrap.u32 %r1, %r2, %r3;", {0x180, 8}, 0x80},
      {"popc.b64 %r1, %rd1;", {UINT64_MAX}, 64},
      {"clz.b32 %r1, %r2;", {0}, 32},
      {"brev.b32 %r1, %r2;", {1}, 0x80000000},
      {"cnot.b32 %r1, %r2;", {0}, 1},
      {"lop3.b32 %r1, %r2, %r3, %r4, 0x80;", {0xF0, 0xCC, 0xAA, 0x80}, 0x80},
      {"lop3.b32 %r1, %r2, %r3, %r4, 0xFE;", {0xF0, 0xCC, 0xAA, 0xFE}, 0xFE},
      {"prmt.b32 %r1, %r2, %r3, 0x7604;", {0x33221100, 0x77665544, 0x7604}, 0x77660044},
      {"prmt.b32 %r1, %r2, %r3, 0x9;", {0x00008000, 0, 0x9}, 0x000000FF},
      {"prmt.b32.f4e %r1, %r2, %r3, 1;", {0x33221100, 0x77665544, 1}, 0x44332211},
      {"prmt.b32.b4e %r1, %r2, %r3, 1;", {0x33221100, 0x77665544, 1}, 0x66770011},
      {"prmt.b32.rc16 %r1, %r2, %r3, 1;", {0x33221100, 0x77665544, 1}, 0x33223322},
  });
}

TEST(Evaluate, Integers) {
  Check({
      {"add.sat.s32 %r1, %r2, %r3;", {0x7FFFFFFF, 1}, 0x7FFFFFFF},
      {"sub.sat.s32 %r1, %r2, %r3;", {0x80000000, 1}, 0x80000000},
      {"mul.hi.s32 %r1, %r2, %r3;", {0xFFFFFFFF, 2}, 0xFFFFFFFF},
      {"mul.hi.u64 %rd1, %rd2, %rd3;", {UINT64_MAX, UINT64_MAX}, UINT64_MAX - 1},
      {"mul.hi.s64 %rd1, %rd2, %rd3;", {UINT64_MAX, UINT64_MAX}, 0},
      {"mul.wide.s32 %rd1, %r2, %r3;", {0xFFFFFFFF, 3}, static_cast<uint64_t>(-3)},
      {"mul.wide.u16 %r1, %h2, %h3;", {0xFFFF, 0xFFFF}, 0xFFFE0001},
      {"mad.wide.s32 %rd1, %r2, %r3, %rd4;", {0xFFFFFFFF, 3, 10}, 7},
      {"mad.hi.sat.s32 %r1, %r2, %r3, %r4;", {0x40000000, 4, 0x7FFFFFFF}, 0x7FFFFFFF},
      {"mul24.lo.u32 %r1, %r2, %r3;", {0xFF000002, 3}, 6},
      {"mul24.hi.s32 %r1, %r2, %r3;", {0x800000, 0x800000}, 0x40000000},
      {"sad.s32 %r1, %r2, %r3, %r4;", {0xFFFFFFFF, 1, 5}, 7},
      {"div.s32 %r1, %r2, %r3;", {0x80000000, 0xFFFFFFFF}, 0x80000000},
      {"rem.s32 %r1, %r2, %r3;", {static_cast<uint32_t>(-7), 3}, static_cast<uint32_t>(-1)},
      {"abs.s32 %r1, %r2;", {0x80000000}, 0x80000000},
      {"min.s16 %h1, %h2, %h3;", {0xFFFF, 1}, 0xFFFF},
      {"max.u16 %h1, %h2, %h3;", {0xFFFF, 1}, 0xFFFF},
      {"dp4a.s32.u32 %r1, %r2, %r3, %r4;", {0xFF01FF01, 0x02020202, 10}, 10},
      {"dp2a.hi.u32.u32 %r1, %r2, %r3, %r4;", {0x00020001, 0x04030000, 1}, 12},
      {"slct.u32.s32 %r1, %r2, %r3, %r4;", {1, 2, 0xFFFFFFFF}, 2},
      {"slct.u32.f32 %r1, %r2, %r3, %f4;", {1, 2, 0x80000000}, 1},
      {"set.lt.u32.s32 %r1, %r2, %r3;", {0xFFFFFFFF, 0}, 0xFFFFFFFF},
      {"setp.lt.u32 %p1, %r2, %r3;", {0xFFFFFFFF, 0}, 0},
  });
}

TEST(Evaluate, CarriesGoFromOneToTheNext) {
  Carry carry;
  Value value;
  const auto run = [&](const char* text, std::vector<uint64_t> sources) {
    EXPECT_TRUE(Evaluate(FirstOf(text), sources, &carry, &value));
    return value.bits;
  };
  EXPECT_EQ(run("add.cc.u32 %r1, %r2, %r3;", {0xFFFFFFFF, 1}), 0u);
  EXPECT_EQ(run("addc.cc.u32 %r1, %r2, %r3;", {0xFFFFFFFF, 0}), 0u);
  EXPECT_EQ(run("addc.u32 %r1, %r2, %r3;", {1, 1}), 3u);
  EXPECT_EQ(run("sub.cc.u32 %r1, %r2, %r3;", {0, 1}), 0xFFFFFFFFu);
  EXPECT_EQ(run("subc.u32 %r1, %r2, %r3;", {5, 1}), 3u);
  EXPECT_EQ(run("mad.lo.cc.u32 %r1, %r2, %r3, %r4;", {0xFFFFFFFF, 1, 2}), 1u);
  EXPECT_EQ(run("madc.hi.u32 %r1, %r2, %r3, %r4;", {0x80000000, 2, 0}), 2u);
}

TEST(Evaluate, FloatingPointEdges) {
  const uint32_t nan = 0x7FFFFFFF;
  const uint32_t subnormal = 1;
  Check({
      {"add.rn.ftz.f32 %f1, %f2, %f3;", {subnormal, 0}, 0},
      {"add.rn.f32 %f1, %f2, %f3;", {subnormal, 0}, subnormal},
      {"add.sat.f32 %f1, %f2, %f3;", {nan, 0}, 0},
      {"add.sat.f32 %f1, %f2, %f3;", {F(2), F(3)}, F(1)},
      {"add.rp.f32 %f1, %f2, %f3;", {F(1), subnormal}, F(1) + 1},
      {"add.rm.f32 %f1, %f2, %f3;", {F(1), F(-1)}, 0x80000000},
      {"min.f32 %f1, %f2, %f3;", {nan, F(1)}, F(1)},
      {"min.NaN.f32 %f1, %f2, %f3;", {nan, F(1)}, nan},
      {"min.f32 %f1, %f2, %f3;", {0, 0x80000000}, 0x80000000},
      {"max.f32 %f1, %f2, %f3;", {0x80000000, 0}, 0},
      {"copysign.f32 %f1, %f2, %f3;", {F(-1), F(5)}, F(-5)},
      {"testp.normal.f32 %p1, %f2;", {0}, 1},
      {"testp.subnormal.f32 %p1, %f2;", {subnormal}, 1},
      {"setp.lt.f32 %p1, %f2, %f3;", {nan, F(1)}, 0},
      {"setp.ltu.f32 %p1, %f2, %f3;", {nan, F(1)}, 1},
      {"setp.eq.ftz.f32 %p1, %f2, %f3;", {subnormal, 0}, 1},
      {"fma.rn.f16 %h1, %h2, %h3, %h4;", {0x3C01, 0x3C01, 0x0001}, 0x3C02},
      {"add.f16x2 %r1, %r2, %r3;", {0x3C003C00, 0x3C004000}, 0x40004200},
      {"fma.rn.relu.f16 %h1, %h2, %h3, %h4;", {0x3C00, 0xBC00, 0}, 0},
  });
}

TEST(Evaluate, Conversions) {
  Check({
      {"cvt.rzi.s32.f32 %r1, %f1;", {F(1e20f)}, 0x7FFFFFFF},
      {"cvt.rzi.u32.f32 %r1, %f1;", {F(-5.0f)}, 0},
      {"cvt.rzi.s32.f32 %r1, %f1;", {0x7FC00000}, 0},
      {"cvt.rzi.s64.f64 %rd1, %d1;", {0x7FF8000000000000}, uint64_t{1} << 63},
      {"cvt.rni.s32.f32 %r1, %f1;", {F(2.5f)}, 2},
      {"cvt.rpi.s32.f32 %r1, %f1;", {F(2.1f)}, 3},
      {"cvt.sat.u8.s32 %r1, %r2;", {0xFFFFFFFF}, 0},
      {"cvt.sat.s8.s32 %r1, %r2;", {300}, 127},
      {"cvt.s32.s8 %r1, %r2;", {0x80}, 0xFFFFFF80},
      {"cvt.rn.f32.u32 %f1, %r1;", {0xFFFFFFFF}, F(4294967296.0f)},
      {"cvt.rz.f32.u32 %f1, %r1;", {0xFFFFFFFF}, F(4294967040.0f)},
      {"cvt.rn.f16.f32 %h1, %f1;", {F(65520.0f)}, 0x7C00},
      {"cvt.rz.f16.f32 %h1, %f1;", {F(65520.0f)}, 0x7BFF},
      {"cvt.rn.f16.f32 %h1, %f1;", {F(5.9604645e-8f)}, 1},
      {"cvt.rn.bf16.f32 %h1, %f1;", {0x3F808000}, 0x3F80},
      {"cvt.f32.f16 %f1, %h1;", {1}, F(5.9604645e-8f)},
      {"cvt.rn.f16x2.f32 %r1, %f1, %f2;", {F(1), F(2)}, 0x3C004000},
      {"cvt.rn.f32.f64 %f1, %d1;", {std::bit_cast<uint64_t>(1e-46)}, 0},
      {"cvt.rp.f32.f64 %f1, %d1;", {std::bit_cast<uint64_t>(1e-46)}, 1},
      {"cvt.rni.f32.f32 %f1, %f2;", {F(-0.4f)}, 0x80000000},
      {"cvt.sat.f32.f32 %f1, %f2;", {F(7)}, F(1)},
  });
}

// One rounding, in every direction, on random operands: the host's own hardware, by long division
// through doubles.
TEST(Evaluate, RoundsLikeTheHost) {
  std::mt19937 random(1);
  for (int n = 0; n < 20'000; ++n) {
    const uint32_t a = random();
    const uint32_t b = random();
    const auto x = std::bit_cast<float>(a);
    const auto y = std::bit_cast<float>(b);
    EXPECT_TRUE(SameValue(Type::kF32, Evaluated("add.rn.f32 %f1, %f2, %f3;", {a, b}), F(x + y)));
    EXPECT_TRUE(SameValue(Type::kF32, Evaluated("mul.rn.f32 %f1, %f2, %f3;", {a, b}), F(x * y)));
    EXPECT_TRUE(SameValue(Type::kF32, Evaluated("div.rn.f32 %f1, %f2, %f3;", {a, b}), F(x / y)));
    // A double holds the product, and rounds to float only here.
    const double product = static_cast<double>(x) * static_cast<double>(y);
    const auto nearest = static_cast<float>(product);
    const uint64_t up = Evaluated("mul.rp.f32 %f1, %f2, %f3;", {a, b});
    if (std::isfinite(product) && std::isfinite(nearest) && product != 0) {
      const float expected =
          static_cast<double>(nearest) < product ? std::nextafterf(nearest, INFINITY) : nearest;
      EXPECT_EQ(up, F(expected)) << x << " * " << y;
    }
  }
}

constexpr std::string_view kReduction = R"(
.version 9.0
.target sm_90
.address_size 64
.global .u32 total = 100;
.visible .entry k(.param .u64 in, .param .u64 out, .param .u32 n) {
  .reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %rd<8>;
  .shared .align 4 .b8 s[256];
  ld.param.u64 %rd1, [in];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %tid.x;
  mov.u32 %r13, %ctaid.x;
  mad.lo.u32 %r2, %r13, 64, %r2;
  mov.u32 %r3, 0;
  setp.ge.u32 %p1, %r2, %r1;
  @%p1 bra STORE;
  mul.wide.u32 %rd2, %r2, 4;
  add.u64 %rd2, %rd1, %rd2;
  ld.global.u32 %r3, [%rd2];
STORE:
  mov.u32 %r4, %tid.x;
  shl.b32 %r5, %r4, 2;
  mov.u32 %r6, s;
  add.u32 %r5, %r6, %r5;
  st.shared.u32 [%r5], %r3;
  mov.u32 %r7, 32;
LOOP:
  bar.sync 0;
  setp.ge.u32 %p2, %r4, %r7;
  @%p2 bra NEXT;
  shl.b32 %r8, %r7, 2;
  add.u32 %r8, %r5, %r8;
  ld.shared.u32 %r9, [%r8];
  ld.shared.u32 %r10, [%r5];
  add.u32 %r10, %r10, %r9;
  st.shared.u32 [%r5], %r10;
NEXT:
  shr.u32 %r7, %r7, 1;
  setp.ne.u32 %p3, %r7, 0;
  @%p3 bra LOOP;
  setp.ne.u32 %p3, %r4, 0;
  @%p3 ret;
  ld.shared.u32 %r11, [s];
  ld.param.u64 %rd3, [out];
  cvta.to.global.u64 %rd3, %rd3;
  atom.global.add.u32 %r12, [%rd3], %r11;
  mov.u64 %rd4, total;
  red.global.add.u32 [%rd4], %r11;
  ret;
}
)";

Launch LaunchOf(uint32_t grid, uint32_t block) {
  Launch launch;
  launch.grid[0] = grid;
  launch.block[0] = block;
  return launch;
}

template <typename T>
void Append(Launch* launch, T value) {
  const size_t at = (launch->params.size() + sizeof(T) - 1) / sizeof(T) * sizeof(T);
  launch->params.resize(at + sizeof(T));
  memcpy(launch->params.data() + at, &value, sizeof(T));
}

TEST(Interpreter, ReducesThroughSharedMemory) {
  const Module module = ParseOrFail(kReduction);
  std::vector<uint32_t> in(150);
  std::iota(in.begin(), in.end(), 1);
  uint32_t out = 0;
  Interpreter interpreter(module);
  interpreter.AddBuffer(in.data(), in.size() * 4);
  interpreter.AddBuffer(&out, 4);
  Launch launch = LaunchOf(3, 64);
  Append(&launch, in.data());
  Append(&launch, &out);
  Append(&launch, uint32_t{150});
  std::string error;
  ASSERT_TRUE(interpreter.Run("k", launch, &error)) << error;
  EXPECT_EQ(out, 150u * 151 / 2);
  uint32_t total;
  memcpy(&total, interpreter.VariableAddress("total"), 4);
  EXPECT_EQ(total, 100 + out);
  launch.params[0] = std::byte{0};
  launch.params[5] = std::byte{0x55};
  EXPECT_FALSE(interpreter.Run("k", launch, &error));
  EXPECT_NE(error.find("illegal global address"), std::string::npos) << error;
}

TEST(Interpreter, RunsWarpOperations) {
  const Module module = ParseOrFail(std::string(kHeader) + R"(
.visible .entry k(.param .u64 out) {
  .reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd2, %r1, 16;
  add.u64 %rd1, %rd1, %rd2;
  shfl.sync.down.b32 %r2|%p1, %r1, 1, 31, -1;
  shfl.sync.bfly.b32 %r3, %r1, 5, 31, -1;
  and.b32 %r4, %r1, 1;
  setp.ne.u32 %p2, %r4, 0;
  vote.sync.ballot.b32 %r5, %p2, -1;
  @%p2 bra ODD;
  redux.sync.add.u32 %r6, %r1, 0x55555555;
  bra JOIN;
ODD:
  redux.sync.max.u32 %r6, %r1, 0xAAAAAAAA;
JOIN:
  match.any.sync.b32 %r7, %r4, -1;
  xor.b32 %r7, %r7, %r5;
  selp.b32 %r8, %r2, 1000, %p1;
  st.global.v4.u32 [%rd1], {%r8, %r3, %r6, %r7};
  ret;
})");
  std::vector<uint32_t> out(128);
  Interpreter interpreter(module);
  interpreter.AddBuffer(out.data(), 512);
  Launch launch = LaunchOf(1, 32);
  Append(&launch, out.data());
  std::string error;
  ASSERT_TRUE(interpreter.Run("k", launch, &error)) << error;
  for (uint32_t lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(out[lane * 4], lane == 31 ? 1000 : lane + 1);
    EXPECT_EQ(out[lane * 4 + 1], lane ^ 5);
    EXPECT_EQ(out[lane * 4 + 2], lane % 2 == 0 ? 240u : 31u);
    EXPECT_EQ(out[lane * 4 + 3], lane % 2 == 0 ? 0xFFFFFFFFu : 0u);
  }
}

TEST(Interpreter, CallsRecursively) {
  const Module module = ParseOrFail(std::string(kHeader) + R"(
.func (.param .b32 r) fact(.param .b32 n) {
  .reg .pred %p<2>; .reg .b32 %r<9>;
  ld.param.u32 %r1, [n];
  mov.u32 %r2, 1;
  setp.lt.u32 %p1, %r1, 2;
  @%p1 bra DONE;
  sub.u32 %r3, %r1, 1;
  { .param .b32 a; .param .b32 b;
    st.param.b32 [a], %r3;
    call (b), fact, (a);
    ld.param.b32 %r4, [b]; }
  mul.lo.u32 %r2, %r4, %r1;
DONE:
  st.param.b32 [r], %r2;
  ret;
}
.global .u64 table[1] = {fact};
.visible .entry k(.param .u64 out) {
  .reg .b32 %r<9>; .reg .b64 %rd<9>;
  ld.param.u64 %rd1, [out];
  ld.global.u64 %rd2, [table];
  proto: .callprototype (.param .b32 _) _ (.param .b32 _);
  { .param .b32 a; .param .b32 b;
    st.param.b32 [a], 6;
    call (b), %rd2, (a), proto;
    ld.param.b32 %r1, [b]; }
  st.global.u32 [%rd1], %r1;
})");
  uint32_t out = 0;
  Interpreter interpreter(module);
  interpreter.AddBuffer(&out, 4);
  Launch launch = LaunchOf(1, 1);
  Append(&launch, &out);
  std::string error;
  ASSERT_TRUE(interpreter.Run("k", launch, &error)) << error;
  EXPECT_EQ(out, 720u);
}

TEST(Interpreter, SaysWhatItDoesNotCover) {
  const Module module = ParseOrFail(emulation::ptx::Kernel("mov.u32 %r1, %smid;"));
  Interpreter interpreter(module);
  Launch launch = LaunchOf(1, 1);
  Append(&launch, uint64_t{0});
  std::string error;
  EXPECT_FALSE(interpreter.Run("k", launch, &error));
  EXPECT_NE(error.find("%smid"), std::string::npos) << error;
  const Module stuck = ParseOrFail(emulation::ptx::Kernel("bar.sync 0, 64;"));
  EXPECT_FALSE(Interpreter(stuck).Run("k", launch, &error));
  EXPECT_NE(error.find("deadlock"), std::string::npos) << error;
}

}  // namespace
}  // namespace smolvm::ptx_interpreter
