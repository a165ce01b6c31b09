#include "tests/unit/emulation_kernels/random_kernel.h"

#include <fmt/format.h>

#include <string_view>

#include "tests/support/split_mix.h"

namespace smolvm::emulation {
namespace {

constexpr uint32_t kWords = 12, kLongs = 4, kFloats = 6, kDoubles = 2, kPredicates = 5;
static_assert(kWords + 2 * kLongs + kFloats + 2 * kDoubles + 2 == kRandomOutputs);

// Templates of instructions: W, L, F, D, P stand for a register of each kind, the first for the
// destination; O is a word that is odd, S a small number, B a byte, I a number of 32 bits.
// PTX ISA 9.0, 9.7.1 to 9.7.8. Left out is what the ISA leaves open: division by zero, payloads and
// signs of NaNs, approximations.
constexpr std::string_view kInstructions[] = {"add.u32 W, W, W",
                                              "sub.u32 W, W, W",
                                              "add.s32 W, W, I",
                                              "add.sat.s32 W, W, W",
                                              "sub.sat.s32 W, W, W",
                                              "mul.lo.u32 W, W, W",
                                              "mul.hi.u32 W, W, W",
                                              "mul.hi.s32 W, W, W",
                                              "mul24.lo.u32 W, W, W",
                                              "mul24.hi.s32 W, W, W",
                                              "mad.lo.u32 W, W, W, W",
                                              "mad.hi.s32 W, W, W, W",
                                              "mad.hi.u32 W, W, W, W",
                                              "mad24.lo.s32 W, W, W, W",
                                              "min.s32 W, W, W",
                                              "max.u32 W, W, W",
                                              "min.u32 W, W, I",
                                              "max.s32 W, W, W",
                                              "sad.u32 W, W, W, W",
                                              "sad.s32 W, W, W, W",
                                              "abs.s32 W, W",
                                              "neg.s32 W, W",
                                              "and.b32 W, W, W",
                                              "or.b32 W, W, W",
                                              "xor.b32 W, W, I",
                                              "not.b32 W, W",
                                              "cnot.b32 W, W",
                                              "shl.b32 W, W, W",
                                              "shl.b32 W, W, S",
                                              "shr.u32 W, W, W",
                                              "shr.s32 W, W, S",
                                              "lop3.b32 W, W, W, W, B",
                                              "shf.l.wrap.b32 W, W, W, W",
                                              "shf.r.clamp.b32 W, W, W, S",
                                              "shf.l.clamp.b32 W, W, W, W",
                                              "bfe.u32 W, W, W, S",
                                              "bfe.s32 W, W, S, W",
                                              "bfi.b32 W, W, W, S, S",
                                              "bfind.u32 W, W",
                                              "bfind.shiftamt.s32 W, W",
                                              "clz.b32 W, W",
                                              "popc.b32 W, W",
                                              "brev.b32 W, W",
                                              "prmt.b32 W, W, W, I",
                                              "prmt.b32.f4e W, W, W, W",
                                              "bmsk.clamp.b32 W, W, S",
                                              "dp4a.u32.u32 W, W, W, W",
                                              "dp4a.s32.u32 W, W, W, W",
                                              "dp2a.lo.s32.s32 W, W, W, W",

                                              "div.u32 W, W, O",
                                              "rem.u32 W, W, O",
                                              "mov.u32 W, W",
                                              "mov.u32 W, I",
                                              "cvt.s32.s8 W, W",
                                              "cvt.u32.u16 W, W",
                                              "cvt.sat.u8.s32 W, W",
                                              "cvt.sat.s16.s32 W, W",
                                              "add.u64 L, L, L",
                                              "sub.s64 L, L, L",
                                              "mul.lo.u64 L, L, L",
                                              "mul.hi.u64 L, L, L",
                                              "mul.hi.s64 L, L, L",
                                              "mad.lo.s64 L, L, L, L",
                                              "mul.wide.u32 L, W, W",
                                              "mul.wide.s32 L, W, W",
                                              "mad.wide.s32 L, W, W, L",
                                              "min.s64 L, L, L",
                                              "max.u64 L, L, L",
                                              "and.b64 L, L, L",
                                              "xor.b64 L, L, L",
                                              "not.b64 L, L",
                                              "shl.b64 L, L, W",
                                              "shr.u64 L, L, S",
                                              "shr.s64 L, L, W",
                                              "bfe.s64 L, L, S, S",
                                              "popc.b64 W, L",
                                              "clz.b64 W, L",
                                              "brev.b64 L, L",
                                              "cvt.u64.u32 L, W",
                                              "cvt.s64.s32 L, W",
                                              "cvt.u32.u64 W, L",
                                              "cvt.sat.s32.s64 W, L",
                                              "mov.b64 L, {W, W}",
                                              "add.rn.f32 F, F, F",
                                              "sub.rz.f32 F, F, F",
                                              "mul.rm.f32 F, F, F",
                                              "mul.rn.f32 F, F, F",
                                              "add.ftz.f32 F, F, F",
                                              "mul.sat.f32 F, F, F",
                                              "fma.rn.f32 F, F, F, F",
                                              "fma.rp.f32 F, F, F, F",
                                              "fma.rn.ftz.sat.f32 F, F, F, F",
                                              "div.rn.f32 F, F, F",
                                              "rcp.rn.f32 F, F",
                                              "sqrt.rn.f32 F, F",
                                              "min.f32 F, F, F",
                                              "max.f32 F, F, F",
                                              "min.NaN.f32 F, F, F",
                                              "max.ftz.f32 F, F, F",
                                              "abs.f32 F, F",
                                              "neg.f32 F, F",
                                              "cvt.rn.f32.s32 F, W",
                                              "cvt.rz.f32.u64 F, L",
                                              "cvt.rzi.s32.f32 W, F",
                                              "cvt.rni.u32.f32 W, F",
                                              "cvt.rmi.f32.f32 F, F",
                                              "mov.b32 F, W",
                                              "add.rn.f64 D, D, D",
                                              "mul.rn.f64 D, D, D",
                                              "fma.rn.f64 D, D, D, D",
                                              "div.rn.f64 D, D, D",
                                              "sqrt.rn.f64 D, D",
                                              "min.f64 D, D, D",
                                              "cvt.f64.f32 D, F",
                                              "cvt.rn.f32.f64 F, D",
                                              "cvt.rn.f64.s64 D, L",
                                              "cvt.rpi.s64.f64 L, D",
                                              "setp.lt.s32 P, W, W",
                                              "setp.hs.u32 P, W, W",
                                              "setp.eq.u32 P, W, W",
                                              "setp.ne.b64 P, L, L",
                                              "setp.gt.s64 P, L, L",
                                              "setp.lt.f32 P, F, F",
                                              "setp.geu.f32 P, F, F",
                                              "setp.num.f64 P, D, D",
                                              "setp.le.and.u32 P, W, W, P",
                                              "setp.gt.xor.s32 P, W, I, !P",
                                              "and.pred P, P, P",
                                              "or.pred P, P, P",
                                              "xor.pred P, P, P",
                                              "not.pred P, P",
                                              "selp.b32 W, W, W, P",
                                              "selp.b64 L, L, L, P",
                                              "selp.f32 F, F, F, P",
                                              "set.lt.u32.s32 W, W, W",
                                              "set.gt.f32.f32 F, F, F",
                                              "slct.u32.s32 W, W, W, W",
                                              "slct.f32.f32 F, F, F, F"};

class Writer {
 public:
  Writer(uint64_t seed, RandomKind kind)
      : random_(seed),
        is_independent_(kind != RandomKind::kAll),
        meets_(kind != RandomKind::kIndependent) {}

  std::string Kernel(const std::string& name) {
    Line(".visible .entry {}(.param .u64 in, .param .u64 out)", name);
    Line("{{");
    Declare();
    Prologue();
    Body(0, false);
    Epilogue();
    Line("  ret;\n}}");
    return std::move(text_);
  }

 private:
  template <typename... Args>
  void Line(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
    text_ += '\n';
  }

  void Declare() {
    Line("  .reg .pred %p<{}>, %q<3>;", kPredicates);
    Line("  .reg .b32 %w<{}>, %a<8>, %n<8>, %u<4>;", kWords);
    Line("  .reg .b64 %l<{}>, %in, %out, %at, %wide, %single;", kLongs);
    Line("  .reg .f32 %f<{}>;\n  .reg .f64 %d<{}>;", kFloats, kDoubles);
    Line("  .shared .align 4 .b32 box[{}];\n  .shared .align 4 .b32 total[2];", kRandomThreads);
    if (!is_independent_) Line("  .local .align 8 .b32 mine[8];");
  }

  // %u: the same for all threads of a block, until something that is not is written to one.
  void IndependentPrologue() {
    for (uint32_t i = 0; i < 4; ++i) Line("  mad.lo.u32 %u{}, %a2, {}, {};", i, 3 + i, i);
    Line("  mov.u32 %a4, %nctaid.x;\n  mul.lo.u32 %a4, %a4, %a3;");
    Line("  mad.wide.u32 %wide, %a4, {}, %in;\n  mad.wide.u32 %single, %a4, 16, %wide;",
         4 * kRandomInputs);
    Line("  mad.wide.u32 %wide, %a1, 16, %wide;\n  mad.wide.u32 %single, %a1, 4, %single;");
    if (!meets_) return;
    Line("  setp.lt.u32 %q0, %a0, 2;\n  shl.b32 %a5, %a0, 2;\n  mov.u32 %a6, total;");
    Line("  add.u32 %a5, %a5, %a6;\n  @%q0 st.shared.u32 [%a5], %a0;\n  bar.sync 0;");
  }

  // %a0: the thread's number in its block, %a1: in the grid.
  void Prologue() {
    Line("  ld.param.u64 %in, [in];\n  ld.param.u64 %out, [out];");
    Line("  mov.u32 %a0, %tid.x;\n  mov.u32 %a2, %ctaid.x;\n  mov.u32 %a3, %ntid.x;");
    Line("  mad.lo.u32 %a1, %a2, %a3, %a0;");
    Line("  mul.wide.u32 %at, %a1, {};\n  add.u64 %at, %in, %at;", 4 * kRandomInputs);
    for (uint32_t i = 0; i < kWords; ++i) {
      if (i < kRandomInputs) {
        Line("  ld.global.u32 %w{}, [%at+{}];", i, 4 * i);
      } else {
        Line("  mad.lo.u32 %w{}, %a1, {}, {};", i, random_.Below(1 << 20), random_.Below(1 << 20));
      }
    }
    for (uint32_t i = 0; i < kLongs; ++i) Line("  mov.b64 %l{}, {{%w{}, %w{}}};", i, i, 7 - i);
    for (uint32_t i = 0; i < kFloats; ++i) {
      Line("  {} %f{}, %w{};", i % 2 != 0 ? "mov.b32" : "cvt.rn.f32.s32", i, i);
    }
    for (uint32_t i = 0; i < kDoubles; ++i) Line("  cvt.rn.f64.s32 %d{}, %w{};", i, i + 3);
    for (uint32_t i = 0; i < kPredicates; ++i)
      Line("  setp.gt.s32 %p{}, %w{}, {};", i, i, static_cast<int32_t>(random_.Next()));
    if (is_independent_) return IndependentPrologue();
    for (uint32_t i = 0; i < 8; ++i) Line("  st.local.u32 [mine+{}], %w{};", 4 * i, i);
    Line("  setp.ge.u32 %q0, %a0, 2;\n  shl.b32 %a2, %a0, 2;\n  mov.u32 %a3, total;");
    Line("  add.u32 %a3, %a3, %a2;\n  @%q0 bra begin;\n  st.shared.u32 [%a3], %a0;\nbegin:");
    Line("  bar.sync 0;");
  }

  // Every register's bits; NaNs as one, since the ISA leaves theirs open.
  void Epilogue() {
    if (is_independent_) {
      Line("  xor.b32 %n0, %u0, %u1;\n  xor.b32 %n1, %u2, %u3;");
      if (meets_) Line("  bar.sync 0;\n  ld.shared.u32 %n1, [total];");
    } else {
      Line("  bar.sync 0;\n  ld.shared.u32 %n0, [total];\n  ld.shared.u32 %n1, [total+4];");
    }
    Line("  mul.wide.u32 %at, %a1, {};\n  add.u64 %at, %out, %at;", 4 * kRandomOutputs);
    uint32_t offset = 0;
    const auto store = [&](std::string_view type, const std::string& value, uint32_t bytes) {
      Line("  st.global.{} [%at+{}], {};", type, offset, value);
      offset += bytes;
    };
    for (uint32_t i = 0; i < kLongs; ++i) store("u64", fmt::format("%l{}", i), 8);
    for (uint32_t i = 0; i < kDoubles; ++i) {
      Line("  setp.nan.f64 %q0, %d{0}, %d{0};\n  mov.b64 %in, %d{0};", i);
      Line("  @%q0 mov.u64 %in, 0x7ff8000000000000;");
      store("u64", "%in", 8);
    }
    for (uint32_t i = 0; i < kWords; ++i) store("u32", fmt::format("%w{}", i), 4);
    for (uint32_t i = 0; i < kFloats; ++i) {
      Line("  setp.nan.f32 %q0, %f{0}, %f{0};\n  mov.b32 %n2, %f{0};", i);
      Line("  @%q0 mov.u32 %n2, 0x7fc00000;");
      store("u32", "%n2", 4);
    }
    store("u32", "%n0", 4);
    store("u32", "%n1", 4);
  }

  std::string Word() { return fmt::format("%w{}", random_.Below(kWords)); }

  void Instruction() {
    const std::string_view pattern = kInstructions[random_.Below(std::size(kInstructions))];
    std::string out;
    if (random_.OneIn(6)) {
      out = fmt::format("@{}%p{} ", random_.OneIn(2) ? "!" : "", random_.Below(kPredicates));
    }
    const size_t operands = pattern.find(' ');
    out += pattern.substr(0, operands);
    for (const char c : pattern.substr(operands)) {
      switch (c) {
        case 'W':
          out += Word();
          break;
        case 'O':
          Line("  or.b32 %a4, {}, 1;", Word());
          out += "%a4";
          break;
        case 'L':
          out += fmt::format("%l{}", random_.Below(kLongs));
          break;
        case 'F':
          out += fmt::format("%f{}", random_.Below(kFloats));
          break;
        case 'D':
          out += fmt::format("%d{}", random_.Below(kDoubles));
          break;
        case 'P':
          out += fmt::format("%p{}", random_.Below(kPredicates));
          break;
        case 'S':
          out += std::to_string(random_.Below(70));
          break;
        case 'B':
          out += std::to_string(random_.Below(256));
          break;
        case 'I':
          out += std::to_string(random_.Of<int32_t>(
              {0, 1, -1, INT32_MAX, -INT32_MAX - 1, static_cast<int32_t>(random_.Next())}));
          break;
        default:
          out += c;
      }
    }
    Line("  {};", out);
  }

  void Carries() {
    const char* suffix = random_.OneIn(2) ? "u32" : "s32";
    const char* op = random_.OneIn(2) ? "add" : "sub";
    Line("  {}.cc.{} {}, {}, {};", op, suffix, Word(), Word(), Word());
    Line("  {}c.cc.{} {}, {}, {};", op, suffix, Word(), Word(), Word());
    Line("  {}c.{} {}, {}, {};", op, suffix, Word(), Word(), Word());
  }

  void FloatBits() {
    const uint32_t f = random_.Below(kFloats);
    const std::string to = Word();
    Line("  setp.nan.f32 %q0, %f{0}, %f{0};\n  mov.b32 {1}, %f{0};", f, to);
    Line("  @%q0 mov.u32 {}, 0x7fc00000;", to);
  }

  void LocalMemory() {
    Line("  and.b32 %a2, {}, 7;\n  shl.b32 %a2, %a2, 2;\n  mov.u32 %a3, mine;", Word());
    Line("  add.u32 %a3, %a3, %a2;");
    if (random_.OneIn(2)) {
      Line("  st.local.u32 [%a3], {};", Word());
    } else {
      Line("  ld.local.u32 {}, [%a3];", Word());
    }
    if (random_.OneIn(3)) Line("  ld.local.v2.u32 {{{}, %a5}}, [mine+16];", Word());
  }

  void Uniform() {
    const auto word = [&] { return fmt::format("%u{}", random_.Below(4)); };
    switch (random_.Below(4)) {
      case 0:
        return Line("  mad.lo.u32 {}, {}, {}, {};", word(), word(), word(), random_.Below(1000));
      case 1:
        return Line("  add.u32 {}, {}, {};", Word(), Word(), word());
      case 2:
        Line("  setp.gt.s32 %q0, {}, {};", word(), static_cast<int32_t>(random_.Next()));
        return Line("  @%q0 xor.b32 {}, {}, {};", word(), word(), word());
      default:
        if (random_.OneIn(4)) Line("  xor.b32 {}, {}, {};", word(), word(), Word());
    }
  }

  // The thread's own words, side by side with its neighbours' or not, and anybody's inputs.
  void Memory() {
    const uint32_t p = random_.Below(kPredicates);
    const std::string guard = random_.OneIn(3) ? fmt::format("@%p{} ", p) : "";
    switch (random_.Below(7)) {
      case 0:
        return Line("  {}st.global.u32 [%single], {};", guard, Word());
      case 1:
        return Line("  {}ld.global.u32 {}, [%single];", guard, Word());
      case 2:
        return Line("  {}st.global.v4.u32 [%wide], {{{}, {}, {}, {}}};", guard, Word(), Word(),
                    Word(), Word());
      case 3:
        return Line("  {}ld.global.v2.u32 {{{}, %a5}}, [%wide+{}];", guard, Word(),
                    8 * random_.Below(2));
      case 4:
        return Line("  {}st.global.u8 [%single+{}], {};", guard, random_.Below(4), Word());
      case 5:
        Line("  and.b32 %a5, {}, 63;\n  mad.wide.u32 %at, %a5, 4, %in;", Word());
        return Line("  {}ld.global.{} {}, [%at];", guard, random_.Of({"u32", "s16", "u8"}), Word());
      default:
        Line("  shl.b32 %a5, %a0, 2;\n  mov.u32 %a6, box;\n  add.u32 %a5, %a5, %a6;");
        Line("  st.shared.u32 [%a5], {};\n  ld.shared.u32 {}, [%a5];", Word(), Word());
        return Line("  {}atom.shared.add.u32 {}, [%a5], {};", guard, Word(), Word());
    }
  }

  void CallFunction() {
    Line("  {{\n    .param .b32 x;\n    st.param.b32 [x], {};", Word());
    Line("    .param .b64 y;\n    st.param.b64 [y], %l{};", random_.Below(kLongs));
    Line("    .param .b32 r;\n    call (r), mix, (x, y);");
    Line("    ld.param.b32 {}, [r];\n  }}", Word());
  }

  // Only where all threads come.
  void SharedMemory() {
    Line("  shl.b32 %a2, %a0, 2;\n  mov.u32 %a3, box;\n  add.u32 %a2, %a3, %a2;");
    Line("  st.shared.u32 [%a2], {};\n  bar.sync 0;", Word());
    Line("  and.b32 %a4, {}, {};\n  shl.b32 %a4, %a4, 2;", Word(), kRandomThreads - 1);
    Line("  add.u32 %a4, %a3, %a4;\n  ld.shared.u32 {}, [%a4];", Word());
    Line("  red.shared.{} [total+{}], {};",
         random_.Of({"add.u32", "xor.b32", "max.s32", "min.u32"}), 4 * random_.Below(2), Word());
    Line("  bar.sync 0;");
    if (is_independent_) return;
    if (random_.OneIn(2)) {
      Line("  bar.red.popc.u32 {}, 0, %p{};", Word(), random_.Below(kPredicates));
    } else {
      Line("  bar.red.{}.pred %p{}, 0, %p{};", random_.Of({"and", "or"}),
           random_.Below(kPredicates), random_.Below(kPredicates));
    }
  }
  void Warp() {
    const uint32_t p = random_.Below(kPredicates);
    const std::string to = Word(), from = Word();
    switch (random_.Below(5)) {
      case 0:
        Line("  shfl.sync.{}.b32 {}|%p{}, {}, {}, {}, 0xffffffff;",
             random_.Of({"idx", "down", "bfly"}), to, p, from, Word(),
             random_.Of({31, 0x101f, 0x181f, 7}));
        return;
      case 1:
        Line("  shfl.sync.up.b32 {}|%p{}, {}, {}, {}, 0xffffffff;", to, p, from, random_.Below(40),
             random_.Of({0, 0x1000}));
        return;
      case 2:
        Line("  vote.sync.ballot.b32 {}, %p{}, 0xffffffff;", to, p);
        return;
      case 3:
        Line("  redux.sync.{} {}, {}, 0xffffffff;",
             random_.Of({"add.s32", "min.u32", "max.s32", "xor.b32", "and.b32"}), to, from);
        return;
      default:
        Line("  and.b32 %a2, {}, 3;\n  match.any.sync.b32 {}, %a2, 0xffffffff;", from, to);
        Line("  vote.sync.{}.pred %p{}, %p{}, 0xffffffff;", random_.Of({"all", "any", "uni"}), p,
             random_.Below(kPredicates));
    }
  }

  void IfElse(uint32_t depth) {
    const uint32_t label = labels_++;
    Line("  @{}%p{} bra else_{};", random_.OneIn(2) ? "!" : "", random_.Below(kPredicates), label);
    Body(depth + 1, true);
    Line("  bra end_{0};\nelse_{0}:", label);
    if (!random_.OneIn(3)) Body(depth + 1, true);
    Line("end_{}:", label);
  }

  // As often as a word of the thread's says, or as often for all.
  void Loop(uint32_t depth, bool diverges) {
    const uint32_t label = labels_++;
    const bool same = random_.OneIn(2);
    if (same) {
      Line("  mov.u32 %n{}, {};", depth, 1 + random_.Below(4));
    } else {
      Line("  and.b32 %n{0}, {1}, 3;\n  add.u32 %n{0}, %n{0}, 1;", depth, Word());
    }
    Line("loop_{}:", label);
    Body(depth + 1, diverges || !same);
    if (random_.OneIn(4)) {
      // A second way out.
      Line("  setp.eq.u32 %q1, {}, {};\n  @%q1 bra out_{};", Word(), random_.Below(1000), label);
    }
    Line("  sub.u32 %n{0}, %n{0}, 1;\n  setp.ne.u32 %q0, %n{0}, 0;\n  @%q0 bra loop_{1};", depth,
         label);
    Line("out_{}:", label);
    // Threads that left by the second way are together again with the others.
    if (!diverges && meets_) Line("  bar.sync 0;");
  }

  void Body(uint32_t depth, bool diverges) {
    constexpr uint32_t kDeepest = 3;
    const uint32_t statements = (depth == 0 ? 24 : 4) + random_.Below(6);
    for (uint32_t i = 0; i < statements; ++i) {
      const uint32_t kind = random_.Below(20);
      if (kind == 0 && depth < kDeepest) {
        IfElse(depth);
      } else if (kind == 1 && depth < kDeepest) {
        Loop(depth, diverges);
      } else if (is_independent_ && (kind == 8 || (kind == 2 && !meets_))) {
        Uniform();
      } else if (is_independent_ && kind >= 3 && kind <= 5) {
        Memory();
      } else if (kind == 2 && !diverges && depth == 0) {
        SharedMemory();
      } else if (kind <= 4 && kind >= 3 && !diverges && depth == 0) {
        Warp();
      } else if (kind == 5) {
        LocalMemory();
      } else if (kind == 6) {
        Carries();
      } else if (kind == 7) {
        FloatBits();
      } else if (kind == 8 && depth < 2) {
        CallFunction();
      } else {
        Instruction();
      }
    }
  }

  Random random_;
  const bool is_independent_;  // no calls, no local memory, no warp operations
  const bool meets_;           // at barriers
  std::string text_;
  uint32_t labels_ = 0;
};

}  // namespace

std::string RandomKernelHeader() {
  return R"(.version 8.0
.target sm_90
.address_size 64
.func (.param .b32 r) mix(.param .b32 x, .param .b64 y)
{
  .reg .pred %p<2>;
  .reg .b32 %w<4>;
  .reg .b64 %l<3>;
  ld.param.b32 %w1, [x];
  ld.param.b64 %l1, [y];
  setp.gt.s32 %p1, %w1, 0;
  @%p1 bra positive;
  shr.u64 %l1, %l1, 7;
positive:
  cvt.u64.u32 %l2, %w1;
  mad.lo.u64 %l1, %l1, 0x9e3779b97f4a7c15, %l2;
  shr.u64 %l1, %l1, 32;
  cvt.u32.u64 %w2, %l1;
  st.param.b32 [r], %w2;
  ret;
}
)";
}

std::string RandomKernel(const std::string& name, uint64_t seed, RandomKind kind) {
  return Writer(seed, kind).Kernel(name);
}

}  // namespace smolvm::emulation
