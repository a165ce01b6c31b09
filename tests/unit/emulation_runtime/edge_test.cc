// Values that an implementer gets wrong, written out by hand: each row names the section of the PTX
// ISA 9.0 that decides it. (instruction_test.cc covers the same instructions more widely, against
// another implementation.)
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "tests/unit/emulation_runtime/instruction_kernel.h"
#include "tests/unit/emulation_runtime/program_fixture.h"

namespace smolvm::emulation {
namespace {

struct EdgeRow {
  const char* section;
  InstructionRow instruction;
  uint64_t sources[kMaxSources];
  uint64_t expected;
};

constexpr uint64_t kOnes64 = ~uint64_t{0};

constexpr EdgeRow kEdges[] = {
    // Shifts clamp at the width.
    {"9.7.8.6 shl", {"shl.b32", "b32 b32 b32"}, {1, 32}, 0},
    {"9.7.8.6 shl", {"shl.b32", "b32 b32 b32"}, {1, 0xffffffff}, 0},
    {"9.7.8.6 shl", {"shl.b64", "b64 b64 b32"}, {3, 63}, uint64_t{1} << 63},
    {"9.7.8.6 shl", {"shl.b16", "b16 b16 b32"}, {1, 16}, 0},
    {"9.7.8.7 shr", {"shr.u32", "b32 b32 b32"}, {0x80000000, 32}, 0},
    {"9.7.8.7 shr", {"shr.s32", "b32 b32 b32"}, {0x80000000, 40}, 0xffffffff},
    {"9.7.8.7 shr", {"shr.s64", "b64 b64 b32"}, {uint64_t{1} << 63, 200}, kOnes64},
    {"9.7.8.7 shr", {"shr.s16", "b16 b16 b32"}, {0x8000, 17}, 0xffff},
    // Funnel shifts: wrap takes the count modulo 32, clamp stops at 32.
    {"9.7.8.5 shf",
     {"shf.l.wrap.b32", "b32 b32 b32 b32"},
     {0x11111111, 0x22222222, 32},
     0x22222222},
    {"9.7.8.5 shf",
     {"shf.l.clamp.b32", "b32 b32 b32 b32"},
     {0x11111111, 0x22222222, 32},
     0x11111111},
    {"9.7.8.5 shf",
     {"shf.r.clamp.b32", "b32 b32 b32 b32"},
     {0x11111111, 0x22222222, 99},
     0x22222222},
    {"9.7.8.5 shf",
     {"shf.r.wrap.b32", "b32 b32 b32 b32"},
     {0x11111111, 0x22222222, 36},
     0x21111111},
    // Bit fields that overflow, are empty, or start past the end.
    {"9.7.1.19 bfe", {"bfe.u32", "b32 b32 b32 b32"}, {0xdeadbeef, 28, 32}, 0xd},
    {"9.7.1.19 bfe", {"bfe.s32", "b32 b32 b32 b32"}, {0xdeadbeef, 28, 32}, 0xfffffffd},
    {"9.7.1.19 bfe", {"bfe.s32", "b32 b32 b32 b32"}, {0x80000000, 40, 8}, 0xffffffff},
    {"9.7.1.19 bfe", {"bfe.s32", "b32 b32 b32 b32"}, {0xffffffff, 4, 0}, 0},
    {"9.7.1.19 bfe", {"bfe.u64", "b64 b64 b32 b32"}, {kOnes64, 0, 255}, kOnes64},
    {"9.7.1.20 bfi", {"bfi.b32", "b32 b32 b32 b32 b32"}, {0xff, 0, 28, 8}, 0xf0000000},
    {"9.7.1.20 bfi", {"bfi.b32", "b32 b32 b32 b32 b32"}, {0xff, 0x1234, 32, 8}, 0x1234},
    {"9.7.1.20 bfi", {"bfi.b32", "b32 b32 b32 b32 b32"}, {0xff, 0x1234, 0, 0}, 0x1234},
    {"9.7.1.22 bmsk", {"bmsk.clamp.b32", "b32 b32 b32"}, {4, 40}, 0xfffffff0},
    {"9.7.1.22 bmsk", {"bmsk.clamp.b32", "b32 b32 b32"}, {32, 4}, 0},
    {"9.7.1.22 bmsk", {"bmsk.wrap.b32", "b32 b32 b32"}, {36, 36}, 0xf0},
    {"9.7.1.21 szext", {"szext.clamp.s32", "b32 b32 b32"}, {0xff, 8}, 0xffffffff},
    {"9.7.1.21 szext", {"szext.clamp.u32", "b32 b32 b32"}, {0xffffffff, 0}, 0},
    {"9.7.1.21 szext", {"szext.wrap.s32", "b32 b32 b32"}, {0x1ff, 40}, 0xffffffff},
    {"9.7.1.16 bfind", {"bfind.u32", "b32 b32"}, {0}, 0xffffffff},
    {"9.7.1.16 bfind", {"bfind.s32", "b32 b32"}, {0xffffffff}, 0xffffffff},
    {"9.7.1.16 bfind", {"bfind.s32", "b32 b32"}, {0xfffffff0}, 3},
    {"9.7.1.16 bfind", {"bfind.shiftamt.u32", "b32 b32"}, {1}, 31},
    {"9.7.1.16 bfind", {"bfind.shiftamt.u64", "b32 b64"}, {0}, 0xffffffff},
    {"9.7.1.15 clz", {"clz.b32", "b32 b32"}, {0}, 32},
    {"9.7.1.15 clz", {"clz.b64", "b32 b64"}, {0}, 64},
    {"9.7.1.17 fns", {"fns.b32", "b32 b32 b32 b32"}, {0b10110, 0, 2}, 2},
    {"9.7.1.17 fns", {"fns.b32", "b32 b32 b32 b32"}, {0b10110, 4, static_cast<uint32_t>(-2)}, 2},
    {"9.7.1.17 fns", {"fns.b32", "b32 b32 b32 b32"}, {0b10110, 1, 0}, 1},
    {"9.7.1.17 fns", {"fns.b32", "b32 b32 b32 b32"}, {0b10110, 3, 0}, 0xffffffff},
    {"9.7.1.17 fns", {"fns.b32", "b32 b32 b32 b32"}, {0b10110, 0, 9}, 0xffffffff},
    // prmt: bit 3 of a selector replicates the sign.
    {"9.7.9.7 prmt", {"prmt.b32", "b32 b32 b32 b32"}, {0x80010203, 0x04050607, 0xb0b3}, 0xff03ff80},
    {"9.7.9.7 prmt", {"prmt.b32.f4e", "b32 b32 b32 b32"}, {0x33221100, 0x77665544, 3}, 0x66554433},
    {"9.7.9.7 prmt", {"prmt.b32.b4e", "b32 b32 b32 b32"}, {0x33221100, 0x77665544, 0}, 0x55667700},
    {"9.7.9.7 prmt", {"prmt.b32.rc16", "b32 b32 b32 b32"}, {0x33221100, 0x77665544, 1}, 0x33223322},
    {"9.7.9.7 prmt", {"prmt.b32.ecl", "b32 b32 b32 b32"}, {0x33221100, 0, 2}, 0x33222222},
    {"9.7.9.7 prmt", {"prmt.b32.ecr", "b32 b32 b32 b32"}, {0x33221100, 0, 1}, 0x11111100},
    {"9.7.8.4 lop3",
     {"lop3.b32", "b32 b32 b32 b32 #202"},
     {0xf0f0f0f0, 0xcccccccc, 0xaaaaaaaa},
     0xcacacaca},
    // Integers.
    {"9.7.1.5 mul24", {"mul24.lo.s32", "b32 b32 b32"}, {0x00ffffff, 2}, 0xfffffffe},
    {"9.7.1.5 mul24", {"mul24.hi.u32", "b32 b32 b32"}, {0xffffff, 0xffffff}, 0xfffffe00},
    {"9.7.1.7 sad", {"sad.s32", "b32 b32 b32 b32"}, {0x80000000, 0x7fffffff, 1}, 0},
    {"9.7.1.7 sad", {"sad.u32", "b32 b32 b32 b32"}, {1, 0xffffffff, 1}, 0xffffffff},
    {"9.7.1.8 div", {"div.s32", "b32 b32 b32"}, {0x80000000, 0xffffffff}, 0x80000000},
    {"9.7.1.9 rem", {"rem.s32", "b32 b32 b32"}, {0x80000000, 0xffffffff}, 0},
    {"9.7.1.8 div (machine-specific)", {"div.u32", "b32 b32 b32"}, {7, 0}, 0xffffffff},
    {"9.7.1.9 rem (machine-specific)", {"rem.u64", "b64 b64 b64"}, {7, 0}, 7},
    {"9.7.1.1 add", {"add.sat.s32", "b32 b32 b32"}, {0x7fffffff, 1}, 0x7fffffff},
    {"9.7.1.2 sub", {"sub.sat.s32", "b32 b32 b32"}, {0x80000000, 1}, 0x80000000},
    {"9.7.1.10 abs", {"abs.s32", "b32 b32"}, {0x80000000}, 0x80000000},
    {"9.7.1.23 dp4a", {"dp4a.s32.u32", "b32 b32 b32 b32"}, {0xff000000, 0xff000000, 0}, 0xffffff01},
    {"9.7.1.24 dp2a",
     {"dp2a.hi.u32.u32", "b32 b32 b32 b32"},
     {0x00020003, 0x05040000, 1},
     2 * 5 + 3 * 4 + 1},
    // Floating point: zeroes, NaN, saturation, subnormals.
    {"9.7.3.1 testp", {"testp.normal.f32", "pred f32"}, {0}, 1},
    {"9.7.3.1 testp", {"testp.subnormal.f32", "pred f32"}, {0x80000001}, 1},
    {"9.7.3.2 copysign", {"copysign.f32", "f32 f32 f32"}, {0x80000000, 0x3f800000}, 0xbf800000},
    {"9.7.3.3 add", {"add.f32", "f32 f32 f32"}, {0x7f800000, 0xff800000}, 0x7fffffff},
    {"9.7.3.3 add", {"add.f32", "f32 f32 f32"}, {0x7fc12345, 0x3f800000}, 0x7fffffff},
    {"9.7.3.3 add", {"add.rm.f32", "f32 f32 f32"}, {0x3f800000, 0xbf800000}, 0x80000000},
    {"9.7.3.3 add", {"add.sat.f32", "f32 f32 f32"}, {0x7fc00000, 0x3f800000}, 0},
    {"9.7.3.3 add", {"add.sat.f32", "f32 f32 f32"}, {0x40000000, 0x3f800000}, 0x3f800000},
    {"9.7.3.3 add", {"add.ftz.f32", "f32 f32 f32"}, {0x00000001, 0x80000001}, 0},
    {"9.7.3.5 mul", {"mul.f32", "f32 f32 f32"}, {0x00800000, 0x3f000000}, 0x00400000},
    {"9.7.3.5 mul", {"mul.ftz.f32", "f32 f32 f32"}, {0x80800000, 0x3f000000}, 0x80000000},
    {"9.7.3.6 fma",
     {"fma.rn.f32", "f32 f32 f32 f32"},
     {0x3f800001, 0x3f800001, 0xbf800002},
     0x28800000},
    {"9.7.3.6 fma",
     {"fma.rz.f32", "f32 f32 f32 f32"},
     {0x3f800000, 0x3f800000, 0x80000001},
     0x3f7fffff},
    {"9.7.3.8 div", {"div.rp.f32", "f32 f32 f32"}, {0x3f800000, 0x40400000}, 0x3eaaaaab},
    {"9.7.3.8 div", {"div.rz.f32", "f32 f32 f32"}, {0x3f800000, 0x40400000}, 0x3eaaaaaa},
    {"9.7.3.11 min", {"min.f32", "f32 f32 f32"}, {0x80000000, 0}, 0x80000000},
    {"9.7.3.11 min", {"min.f32", "f32 f32 f32"}, {0x7fc00000, 0x3f800000}, 0x3f800000},
    {"9.7.3.11 min", {"min.NaN.f32", "f32 f32 f32"}, {0x7fc00000, 0x3f800000}, 0x7fffffff},
    {"9.7.3.12 max", {"max.f32", "f32 f32 f32"}, {0x80000000, 0}, 0},
    {"9.7.3.12 max", {"max.f64", "f64 f64 f64"}, {0x8000000000000000, 0}, 0},
    {"9.7.3.12 max", {"max.xorsign.abs.f32", "f32 f32 f32"}, {0xc0000000, 0x3f800000}, 0xc0000000},
    {"9.7.4.1 add.f16", {"add.f16", "b16 b16 b16"}, {0x7bff, 0x7bff}, 0x7c00},
    {"9.7.4.1 add.f16", {"add.f16", "b16 b16 b16"}, {0x7c00, 0xfc00}, 0x7fff},
    {"9.7.4.4 fma.f16", {"fma.rn.f16", "b16 b16 b16 b16"}, {0x3c01, 0x3c01, 0xbc02}, 0x0010},
    {"9.7.4.4 fma.bf16", {"fma.rn.bf16", "b16 b16 b16 b16"}, {0x3f81, 0x3f81, 0xbf82}, 0x3880},
    {"9.7.4.1 add.f16x2", {"add.f16x2", "b32 b32 b32"}, {0x3c004000, 0x40003c00}, 0x42004200},
    // Comparisons with NaN: ordered false, unordered true; ne is ordered.
    {"9.7.6.2 setp", {"setp.ne.f32", "pred f32 f32"}, {0x7fc00000, 0}, 0},
    {"9.7.6.2 setp", {"setp.neu.f32", "pred f32 f32"}, {0x7fc00000, 0}, 1},
    {"9.7.6.2 setp", {"setp.eq.f32", "pred f32 f32"}, {0x80000000, 0}, 1},
    {"9.7.6.2 setp", {"setp.ltu.f64", "pred f64 f64"}, {0x7ff8000000000000, 0}, 1},
    {"9.7.6.2 setp", {"setp.lo.u32", "pred b32 b32"}, {1, 0xffffffff}, 1},
    {"9.7.6.1 set", {"set.lt.u32.s32", "b32 b32 b32"}, {0xffffffff, 0}, 0xffffffff},
    {"9.7.6.1 set", {"set.lt.f32.s32", "f32 b32 b32"}, {0xffffffff, 0}, 0x3f800000},
    {"9.7.6.4 slct", {"slct.u32.f32", "b32 b32 b32 f32"}, {1, 2, 0x7fc00000}, 2},
    {"9.7.6.4 slct", {"slct.u32.f32", "b32 b32 b32 f32"}, {1, 2, 0x80000000}, 1},
    // Conversions.
    {"9.7.9.21 cvt", {"cvt.rzi.s32.f32", "b32 f32"}, {0x7fc00000}, 0},
    {"9.7.9.21 cvt", {"cvt.rzi.s64.f32", "b64 f32"}, {0x7fc00000}, uint64_t{1} << 63},
    {"9.7.9.21 cvt", {"cvt.rzi.u32.f64", "b32 f64"}, {0x7ff8000000000000}, 0x80000000},
    {"9.7.9.21 cvt", {"cvt.rzi.s32.f32", "b32 f32"}, {0x4f000000}, 0x7fffffff},
    {"9.7.9.21 cvt", {"cvt.rzi.u32.f32", "b32 f32"}, {0xbf800000}, 0},
    {"9.7.9.21 cvt", {"cvt.rni.s32.f32", "b32 f32"}, {0x40200000}, 2},
    {"9.7.9.21 cvt", {"cvt.rpi.s32.f32", "b32 f32"}, {0xbf000000}, 0},
    {"9.7.9.21 cvt", {"cvt.rz.f32.u32", "f32 b32"}, {0xffffffff}, 0x4f7fffff},
    {"9.7.9.21 cvt", {"cvt.rp.f32.s32", "f32 b32"}, {0x01000001}, 0x4b800001},
    {"9.7.9.21 cvt", {"cvt.sat.u8.s32", "b16 b32"}, {300}, 255},
    {"9.7.9.21 cvt", {"cvt.sat.u8.s32", "b16 b32"}, {static_cast<uint32_t>(-3)}, 0},
    {"9.7.9.21 cvt", {"cvt.sat.f32.f32", "f32 f32"}, {0x7fc00000}, 0},
    {"9.7.9.21 cvt", {"cvt.rn.f16.f32", "b16 f32"}, {0x477ff000}, 0x7c00},
    {"9.7.9.21 cvt", {"cvt.rz.f16.f32", "b16 f32"}, {0x477ff000}, 0x7bff},
    {"9.7.9.21 cvt", {"cvt.rn.satfinite.bf16.f32", "b16 f32"}, {0x7f7fffff}, 0x7f7f},
    {"9.7.9.21 cvt", {"cvt.rn.relu.f16.f32", "b16 f32"}, {0xbf800000}, 0},
    {"9.7.9.21 cvt", {"cvt.rn.bf16x2.f32", "b32 f32 f32"}, {0x3f800000, 0x40000000}, 0x3f804000},
    {"9.7.9.22 cvt.pack",
     {"cvt.pack.sat.u8.s32.b32", "b32 b32 b32 b32"},
     {300, 7, 0xabcd},
     0xabcdff07},
    {"9.7.9.22 cvt.pack",
     {"cvt.pack.sat.s16.s32", "b32 b32 b32"},
     {40000, static_cast<uint32_t>(-40000)},
     0x7fff8000},
    // Video.
    {"9.7.18 vabsdiff4",
     {"vabsdiff4.u32.u32.u32", "b32 b32 b32 #0"},
     {0x01ff8000, 0xff0100ff},
     0xfefe80ff},
    {"9.7.18 vadd4",
     {"vadd4.s32.s32.s32.sat", "b32 b32 b32 #0"},
     {0x7f800102, 0x01ff0102},
     0x7f800204},
    {"9.7.18 vavrg4",
     {"vavrg4.u32.u32.u32", "b32 b32 b32 #0"},
     {0x00010203, 0x01010304},
     0x01010304},
    {"9.7.18 vabsdiff4",
     {"vabsdiff4.u32.u32.u32.add", "b32 b32 b32 b32"},
     {0x01020304, 0, 100},
     110},
    {"9.7.17 vadd", {"vadd.s32.s32.s32.sat", "b32 b32 b32"}, {0x7fffffff, 5}, 0x7fffffff},
};

class Edges : public ProgramTest {};

TEST_F(Edges, Table) {
  constexpr size_t kBatch = 40;
  const std::span<const EdgeRow> all(kEdges);
  for (size_t at = 0; at < all.size(); at += kBatch) {
    const auto rows = all.subspan(at, std::min(kBatch, all.size() - at));
    std::vector<InstructionRow> instructions;
    std::vector<uint64_t> in;
    for (const EdgeRow& row : rows) {
      instructions.push_back(row.instruction);
      in.insert(in.end(), std::begin(row.sources), std::end(row.sources));
    }
    const std::string text = KernelText(instructions);
    ASSERT_EQ(Load(text), "") << text;
    auto* out = Allocate<uint64_t>(rows.size());
    memset(out, 0, rows.size() * 8);
    ASSERT_EQ(Run("rows", 1, 1, Params().Add(Upload(in)).Add(out)), CUDA_SUCCESS);
    for (size_t k = 0; k < rows.size(); ++k) {
      EXPECT_EQ(fmt::format("{:x}", out[k]), fmt::format("{:x}", rows[k].expected))
          << rows[k].section << ": " << rows[k].instruction.mnemonic
          << fmt::format(" of {:x} {:x} {:x} {:x}", rows[k].sources[0], rows[k].sources[1],
                         rows[k].sources[2], rows[k].sources[3]);
    }
  }
}

// 9.7.2: CC.CF goes through chains of any length. (Of sums and differences together:
// TheCarryFlagGoesFromSumsToDifferencesAndBack in operands_test.cc.)
TEST_F(Edges, CarryChains) {
  ASSERT_EQ(Load(R"(.version 8.7
.target sm_90
.address_size 64
.visible .entry chains(.param .u64 in, .param .u64 out) {
  .reg .b64 %p, %q;
  .reg .b32 %a<4>, %b<4>, %c<5>, %d<5>, %e<3>;
  ld.param.u64 %p, [in];
  ld.param.u64 %q, [out];
  ld.global.v4.b32 {%a0, %a1, %a2, %a3}, [%p];
  ld.global.v4.b32 {%b0, %b1, %b2, %b3}, [%p+16];
  add.cc.u32 %c0, %a0, %b0;
  addc.cc.u32 %c1, %a1, %b1;
  addc.cc.u32 %c2, %a2, %b2;
  addc.cc.u32 %c3, %a3, %b3;
  addc.u32 %c4, 0, 0;
  sub.cc.u32 %d0, %a0, %b0;
  subc.cc.u32 %d1, %a1, %b1;
  subc.cc.u32 %d2, %a2, %b2;
  subc.cc.u32 %d3, %a3, %b3;
  subc.u32 %d4, 0, 0;
  mad.lo.cc.u32 %e0, %a0, %b0, %a1;
  madc.hi.cc.u32 %e1, %a0, %b0, %b1;
  madc.lo.u32 %e2, 0, 0, 0;
  st.global.v4.b32 [%q], {%c0, %c1, %c2, %c3};
  st.global.b32 [%q+16], %c4;
  st.global.b32 [%q+20], %d0;
  st.global.b32 [%q+24], %d1;
  st.global.b32 [%q+28], %d2;
  st.global.b32 [%q+32], %d3;
  st.global.b32 [%q+36], %d4;
  st.global.b32 [%q+40], %e0;
  st.global.b32 [%q+44], %e1;
  st.global.b32 [%q+48], %e2;
  ret;
})"),
            "");
  std::mt19937 random(4);
  for (int round = 0; round < 50; ++round) {
    std::vector<uint32_t> in(8);
    for (uint32_t& word : in) word = random() % 4 == 0 ? ~0u : random() % 4 == 0 ? 0 : random();
    uint32_t* out = Allocate<uint32_t>(16);
    ASSERT_EQ(Run("chains", 1, 1, Params().Add(Upload(in)).Add(out)), CUDA_SUCCESS);
    const auto wide = [&](size_t at) {
      unsigned __int128 value = 0;
      for (size_t k = 0; k < 4; ++k)
        value |= static_cast<unsigned __int128>(in[at + k]) << (32 * k);
      return value;
    };
    const unsigned __int128 a = wide(0), b = wide(4), sum = a + b, difference = a - b;
    for (unsigned k = 0; k < 4; ++k) {
      ASSERT_EQ(out[k], static_cast<uint32_t>(sum >> (32 * k)));
      ASSERT_EQ(out[5 + k], static_cast<uint32_t>(difference >> (32 * k)));
    }
    ASSERT_EQ(out[4], static_cast<uint32_t>(sum < a));
    ASSERT_EQ(out[9], a < b ? ~0u : 0u);
    const unsigned __int128 product = static_cast<unsigned __int128>(in[0]) * in[4] + in[1] +
                                      (static_cast<unsigned __int128>(in[5]) << 32);
    ASSERT_EQ(out[10], static_cast<uint32_t>(product));
    ASSERT_EQ(out[11], static_cast<uint32_t>(product >> 32));
    ASSERT_EQ(out[12], static_cast<uint32_t>(product >> 64));
  }
}

// The approximate functions, by the error bounds of the ISA.
TEST_F(Edges, ApproximateFunctions) {
  struct Bound {
    InstructionRow instruction;
    double (*exact)(double);
    double relative, absolute;
    double low, high;
  };
  static const Bound kBounds[] = {
      {{"ex2.approx.f32", "f32 f32"},
       [](double x) { return std::exp2(x); },
       0x1p-22,
       0x1p-149,
       -160,
       130},
      {{"ex2.approx.ftz.f32", "f32 f32"},
       [](double x) { return std::exp2(x); },
       0x1p-22,
       0x1p-126,
       -160,
       130},
      {{"lg2.approx.f32", "f32 f32"},
       [](double x) { return std::log2(x); },
       0x1p-22,
       0x1p-22,
       1e-30,
       1e30},
      {{"sin.approx.f32", "f32 f32"}, [](double x) { return std::sin(x); }, 0, 0x1p-20, -3.2, 3.2},
      {{"cos.approx.f32", "f32 f32"}, [](double x) { return std::cos(x); }, 0, 0x1p-20, -3.2, 3.2},
      {{"tanh.approx.f32", "f32 f32"}, [](double x) { return std::tanh(x); }, 0x1p-11, 0, -10, 10},
      {{"rcp.approx.f32", "f32 f32"}, [](double x) { return 1 / x; }, 0x1p-23, 0, 1e-30, 1e30},
      {{"rsqrt.approx.f32", "f32 f32"},
       [](double x) { return 1 / std::sqrt(x); },
       0x1.2p-23,
       0,
       1e-30,
       1e30},
      {{"sqrt.approx.f32", "f32 f32"}, [](double x) { return std::sqrt(x); }, 0x1p-23, 0, 0, 1e30},
  };
  std::vector<InstructionRow> instructions;
  for (const Bound& bound : kBounds) instructions.push_back(bound.instruction);
  ASSERT_EQ(Load(KernelText(instructions)), "");
  constexpr uint32_t kThreads = 1024;
  const size_t rows = instructions.size();
  std::mt19937 random(8);
  std::vector<uint64_t> in(kThreads * rows * kMaxSources);
  for (uint32_t t = 0; t < kThreads; ++t) {
    for (size_t k = 0; k < rows; ++k) {
      const Bound& bound = kBounds[k];
      const double unit = static_cast<double>(random()) / 4294967296.0;
      const bool geometric = bound.low > 0;
      const double x = geometric ? bound.low * std::pow(bound.high / bound.low, unit)
                                 : bound.low + (bound.high - bound.low) * unit;
      in[(t * rows + k) * kMaxSources] = std::bit_cast<uint32_t>(static_cast<float>(x));
    }
  }
  auto* out = Allocate<uint64_t>(kThreads * rows);
  ASSERT_EQ(Run("rows", 1, kThreads, Params().Add(Upload(in)).Add(out)), CUDA_SUCCESS);
  for (uint32_t t = 0; t < kThreads; ++t) {
    for (size_t k = 0; k < rows; ++k) {
      const auto x = std::bit_cast<float>(static_cast<uint32_t>(in[(t * rows + k) * kMaxSources]));
      const double got = std::bit_cast<float>(static_cast<uint32_t>(out[t * rows + k]));
      const double exact = kBounds[k].exact(x);
      if (exact > std::numeric_limits<float>::max()) {
        EXPECT_TRUE(std::isinf(got)) << kBounds[k].instruction.mnemonic << " of " << x;
        continue;
      }
      EXPECT_LE(std::fabs(got - exact),
                kBounds[k].relative * std::fabs(exact) + kBounds[k].absolute)
          << kBounds[k].instruction.mnemonic << " of " << x << ": " << got << ", exactly " << exact;
    }
  }
}

}  // namespace
}  // namespace smolvm::emulation
