#include "tests/unit/emulation_kernels/hostile_kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string_view>

#include "tests/support/split_mix.h"

namespace smolvm::emulation {
namespace {

enum Trait : uint32_t {
  kDereferences = 1,
  kOnlyScalar = 2,  // uses calls or local memory
};

struct Template {
  std::string_view text;
  uint32_t traits;
};

// A: the address, in 64 bits; S: the same in 32. X: an offset. G: nothing or .global. V, W: what is
// read or written, of 64 and of 32 bits; others of them with a number behind. B: the buffer.
// PTX ISA 9.0, 9.7.9 (loads, stores, asynchronous copies), 9.7.13 (atomics, mbarriers), 9.7.15
// (stack).
constexpr Template kTemplates[] = {
    {"ldG.u64 V, [A+X];", kDereferences},
    {"ldG.u8 W, [A+X];", kDereferences},
    {"ldG.s16 W, [A+X];", kDereferences},
    {"ldG.u32 W, [A+X];", kDereferences},
    {"ldG.v2.u64 {V, V2}, [A+X];", kDereferences},
    {"ldG.v4.u32 {W, W2, W3, W4}, [A+X];", kDereferences},
    {"ldG.v2.u8 {W, W2}, [A+X];", kDereferences},
    {"ld.volatileG.u64 V, [A+X];", kDereferences},
    {"ld.acquire.gpuG.u32 W, [A+X];", kDereferences},
    {"ld.const.u64 V, [A+X];", kDereferences},
    {"ld.shared.u64 V, [A+X];", 0},
    {"ld.shared.u64 V, [S+X];", 0},
    {"ld.shared.v4.u32 {W, W2, W3, W4}, [S+X];", 0},
    {"ld.param.u64 V, [A+X];", 0},
    {"ld.param.u32 W, [S+X];", 0},
    {"stG.u64 [A+X], V;", kDereferences},
    {"stG.u8 [A+X], W;", kDereferences},
    {"stG.u16 [A+X], W;", kDereferences},
    {"stG.u32 [A+X], W;", kDereferences},
    {"stG.v2.u64 [A+X], {V, V2};", kDereferences},
    {"stG.v4.u32 [A+X], {W, W2, W3, W4};", kDereferences},
    {"st.volatileG.u64 [A+X], V;", kDereferences},
    {"st.release.sysG.u32 [A+X], W;", kDereferences},
    {"st.shared.u64 [A+X], V;", 0},
    {"st.shared.u64 [S+X], V;", 0},
    {"st.shared.v2.u64 [A+X], {V, V2};", 0},
    {"st.shared.v4.u32 [S+X], {W, W2, W3, W4};", 0},
    {"atomG.add.u32 W, [A+X], W2;", kDereferences},
    {"atomG.add.u64 V, [A+X], V2;", kDereferences},
    {"atomG.cas.b16 %h1, [A+X], %h2, %h3;", kDereferences},
    {"atomG.cas.b32 W, [A+X], W2, W3;", kDereferences},
    {"atomG.cas.b64 V, [A+X], V2, V;", kDereferences},
    {"atomG.exch.b64 V, [A+X], V2;", kDereferences},
    {"atomG.exch.b128 %q1, [A+X], %q2;", kDereferences},
    {"atomG.cas.b128 %q1, [A+X], %q2, %q1;", kDereferences},
    {"atomG.min.s32 W, [A+X], W2;", kDereferences},
    {"atomG.max.u64 V, [A+X], V2;", kDereferences},
    {"atomG.inc.u32 W, [A+X], W2;", kDereferences},
    {"atomG.and.b32 W, [A+X], W2;", kDereferences},
    {"atomG.add.f32 %f1, [A+X], %f2;", kDereferences},
    {"atomG.add.f64 %d1, [A+X], %d2;", kDereferences},
    {"atomG.add.noftz.f16x2 W, [A+X], W2;", kDereferences},
    {"atom.global.v2.f32.add {%f1, %f2}, [A+X], {%f1, %f2};", kDereferences},
    {"red.global.add.v2.f32 [A+X], {%f1, %f2};", kDereferences},
    {"redG.or.b64 [A+X], V;", kDereferences},
    {"redG.add.u32 [A+X], W;", kDereferences},
    {"atom.shared.add.u64 V, [A+X], V2;", 0},
    {"atom.shared.exch.b32 W, [S+X], W2;", 0},
    {"atom.shared.cas.b64 V, [S+X], V2, V;", 0},
    {"red.shared.add.f32 [S+X], %f1;", 0},
    {"mbarrier.init.b64 [A+X], 5;", kDereferences},
    {"mbarrier.init.shared.b64 [A+X], W;", 0},
    {"mbarrier.init.shared.b64 [S+X], 5;", 0},
    {"mbarrier.inval.b64 [A+X];", kDereferences},
    {"mbarrier.inval.shared.b64 [S+X];", 0},
    {"mbarrier.arrive.b64 V, [A+X];", kDereferences},
    {"mbarrier.arrive.shared.b64 V, [S+X], 1;", 0},
    {"mbarrier.arrive_drop.b64 V, [A+X];", kDereferences},
    {"mbarrier.test_wait.b64 %p3, [A+X], V;", kDereferences},
    {"mbarrier.test_wait.parity.shared.b64 %p3, [S+X], W;", 0},
    {"cp.async.mbarrier.arrive.b64 [A+X];", kDereferences},
    {"cp.async.mbarrier.arrive.noinc.b64 [A+X];", kDereferences},
    {"cp.async.mbarrier.arrive.noinc.shared.b64 [S+X];", 0},
    {"cp.async.ca.shared.global [A+X], [B], 8;", 0},
    {"cp.async.ca.shared.global [S+X], [B], 4, W;", 0},
    {"cp.async.cg.shared.global [S+X], [B], 16;", 0},
    {"cp.async.ca.shared.global [box], [A+X], 4;", kDereferences},
    {"cp.async.cg.shared.global [box], [A+X], 16;", kDereferences},
    {"cp.async.ca.shared.global [box], [A+X], 8, W;", 0},
    {"prefetch.global.L1 [A+X];", 0},
    {"discard.global.L2 [A], 128;", 0},
    {"st.shared.u64 [box+X], V;", 0},
    {"ld.shared.v2.u64 {V, V2}, [box+X];", 0},
    {"st.u64 [box+X], V;", 0},
    {"atom.shared.add.u64 V, [box+X], V2;", 0},
    {"atom.exch.b64 V, [box+X], V2;", 0},
    {"mbarrier.init.shared.b64 [box+X], 5;", 0},
    {"mbarrier.arrive.b64 V, [box+X];", 0},
    {"cp.async.ca.shared.global [box+X], [B], 8;", 0},
    {"cvta.to.shared.u64 V2, A; st.shared.u64 [V2+X], V;", 0},
    {"isspacep.shared %p3, A; @%p3 ld.u64 V, [A+X];", 0},
    {"mapa.shared::cluster.u64 V2, A, 0; st.shared::cluster.u64 [V2+X], V;", 0},

    {"ld.local.u64 V, [A+X];", kOnlyScalar},
    {"ld.local.v4.u32 {W, W2, W3, W4}, [S+X];", kOnlyScalar},
    {"st.local.u64 [A+X], V;", kOnlyScalar},
    {"st.local.u8 [S+X], W;", kOnlyScalar},
    {"st.local.v2.u64 [S+X], {V, V2};", kOnlyScalar},
    {"st.local.u64 [mine+X], V;", kOnlyScalar},
    {"ld.local.u64 V, [mine+X];", kOnlyScalar},
    {"st.v2.u64 [mine+X], {V, V2};", kOnlyScalar},
    {"atom.add.u64 V, [mine+X], V2;", kOnlyScalar},
    {"mbarrier.init.b64 [mine+X], 5;", kOnlyScalar},
    {"mbarrier.arrive_drop.b64 V, [mine+X];", kOnlyScalar},
    {"cvta.to.local.u64 V2, A; st.local.u64 [V2+X], V;", kOnlyScalar},
    {"alloca.u32 %a1, S; st.local.u32 [%a1+X], W;", kOnlyScalar},
    {"alloca.u64 V2, A, 64; st.local.u64 [V2], V;", kOnlyScalar},
    {"stackrestore.u32 S; { .param .b32 q; .param .b32 s; st.param.b32 [q], W; call (s), frame, "
     "(q); "
     "ld.param.b32 W2, [s]; }",
     kOnlyScalar},
    {"stackrestore.u64 A; { .param .align 16 .b8 q[64]; .param .b64 a; st.param.b64 [q+56], V; "
     "st.param.b64 [a], V; call taken, (q, a); }",
     kOnlyScalar},
    {"stacksave.u32 %a1; add.u32 %a1, %a1, S; stackrestore.u32 %a1; alloca.u32 %a1, 64; "
     "st.local.u64 [%a1+56], V;",
     kOnlyScalar},
    {"{ .param .align 16 .b8 q[64]; .param .b64 a; st.param.b64 [q], V; st.param.b64 [a], A; "
     "call taken, (q, a); }",
     kOnlyScalar},
    {"{ .param .b64 a; .param .b64 v; .param .b64 r; st.param.b64 [a], A; st.param.b64 [v], V; "
     "call (r), touch, (a, v); ld.param.b64 V, [r]; }",
     kOnlyScalar | kDereferences},
    {"{ .param .b32 n; st.param.b32 [n], S; call down, (n); }", kOnlyScalar},
    {"{ .param .b64 a; .param .b64 v; .param .b64 r; st.param.b64 [a], B; st.param.b64 [v], V; "
     "call (r), A, (a, v), two_to_one; ld.param.b64 V, [r]; }",
     kOnlyScalar},
    {"{ .param .b32 q; .param .b32 s; st.param.b32 [q], W; call (s), A, (q), one_to_one; }",
     kOnlyScalar},
    {"{ .param .align 16 .b8 q[64]; .param .align 16 .b8 s[256]; call (s), A, (q), bytes_to_bytes; "
     "ld.param.b64 V, [s+248]; }",
     kOnlyScalar},
    {"{ .param .b64 q; st.param.b64 [q], A; call free, (q); }", kOnlyScalar},
    {"{ .param .b64 q; .param .b64 s; st.param.b64 [q], A; call (s), malloc, (q); "
     "ld.param.b64 V2, [s]; setp.ne.b64 %p3, V2, 0; @%p3 st.u8 [V2], W; }",
     kOnlyScalar},
    {"{ .param .b64 q; .param .b64 t; .param .b32 s; st.param.b64 [q], A; st.param.b64 [t], B; "
     "call (s), vprintf, (q, t); }",
     kOnlyScalar},
    {"{ .param .b64 q; .param .b64 t; .param .b32 s; st.param.b64 [q], B; st.param.b64 [t], A; "
     "call (s), vprintf, (q, t); }",
     kOnlyScalar},
    {"brx.idx S, targets; first: st.shared.u32 [box], W; second:", kOnlyScalar},
};

constexpr std::string_view kFunctions = R"(
.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
.extern .func (.param .b64 r) malloc(.param .b64 n);
.extern .func free(.param .b64 p);
.func (.param .b32 r) frame(.param .b32 v)
{
  .local .align 16 .b8 a[256];
  .reg .b32 %x<3>;
  ld.param.b32 %x1, [v];
  st.local.u32 [a], %x1;
  st.local.u32 [a+252], %x1;
  ld.local.u32 %x2, [a+128];
  st.param.b32 [r], %x2;
  ret;
}
.func taken(.param .align 16 .b8 v[64], .param .b64 at)
{
  .reg .b64 %x<4>;
  mov.b64 %x1, v;
  ld.param.b64 %x2, [at];
  ld.param.b64 %x3, [v+56];
  add.u64 %x1, %x1, %x2;
  st.local.u64 [%x1], %x3;
  ret;
}
.func (.param .b64 r) touch(.param .b64 at, .param .b64 v)
{
  .reg .b64 %x<4>;
  ld.param.b64 %x1, [at];
  ld.param.b64 %x2, [v];
  atom.exch.b64 %x3, [%x1], %x2;
  st.param.b64 [r], %x3;
  ret;
}
.func down(.param .b32 n)
{
  .local .align 16 .b8 a[128];
  .reg .b32 %x<3>;
  .reg .pred %p;
  ld.param.b32 %x1, [n];
  st.local.u32 [a+124], %x1;
  setp.eq.u32 %p, %x1, 0;
  @%p ret;
  sub.u32 %x1, %x1, 1;
  { .param .b32 m; st.param.b32 [m], %x1; call down, (m); }
  ret;
}
.global .align 8 .u64 handles[3] = {touch, frame, taken};
)";

// %v is what was read or is written, %v2 to write with; %at is the address.
constexpr std::string_view kPrologue = R"(
  .reg .pred %p<6>, %hostile, %innocent, %is_base;
  .reg .b16 %h<4>;
  .reg .b32 %r<16>, %w<6>, %a<3>, %as, %base, %attempt;
  .reg .b64 %x<16>, %v<6>, %at, %from, %buffer;
  .reg .b128 %q<3>;
  .reg .f32 %f<3>;
  .reg .f64 %d<3>;
  .shared .align 16 .b8 box[1024];
  ld.param.u32 %r8, [salt];
  ld.param.u32 %base, [base];
  ld.param.u32 %attempt, [attempt];
  ld.param.u64 %at, [absolute];
  ld.param.u64 %from, [delta];
  ld.param.u64 %buffer, [buffer];
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %ctaid.x;
  ld.param.u32 %r3, [mask];
  ld.param.u32 %r4, [value];
  and.b32 %r3, %r3, %r1;
  setp.eq.u32 %hostile, %r3, %r4;
  setp.eq.u32 %innocent, %r2, 0;
  and.pred %hostile, %hostile, %innocent;
  not.pred %innocent, %hostile;
  // The pattern of this thread: salt, 0xc0, block, thread, index.
  shl.b32 %r5, %r2, 20;
  shl.b32 %r6, %r1, 8;
  or.b32 %r5, %r5, %r6;
  or.b32 %r5, %r5, 0xc0000000;
  mov.b64 %x1, {%r5, %r8};
  shl.b32 %r7, %r1, 3;
  mov.u32 %r9, box;
  add.u32 %r9, %r9, %r7;
  or.b64 %x2, %x1, 0x1000000;  // 0xc1 in shared memory
  st.shared.u64 [%r9], %x2;
  setp.eq.u32 %is_base, %base, 2;
  mov.u64 %x3, box;
  cvta.shared.u64 %x4, %x3;
  @%is_base mov.u64 %at, %x4;
  setp.eq.u32 %is_base, %base, 5;
  @%is_base mov.u64 %at, %x3;
  setp.eq.u32 %is_base, %base, 6;
  mov.u64 %x3, canary;
  @%is_base mov.u64 %at, %x3;
  setp.eq.u32 %is_base, %base, 3;
  cvta.param.u64 %x10, %x3;
  @%is_base mov.u64 %at, %x10;
)";

constexpr std::string_view kLocalPrologue = R"(
  .local .align 16 .b8 mine[2048];
  targets: .branchtargets first, second;
  two_to_one: .callprototype (.param .b64 _) _ (.param .b64 _, .param .b64 _);
  one_to_one: .callprototype (.param .b32 _) _ (.param .b32 _);
  bytes_to_bytes: .callprototype (.param .align 16 .b8 _[256]) _ (.param .align 16 .b8 _[64]);
  setp.eq.u32 %is_base, %base, 4;
  mov.u64 %x3, mine;
  @%is_base mov.u64 %at, %x3;
  cvta.local.u64 %x4, %x3;
  setp.eq.u32 %is_base, %base, 1;
  @%is_base mov.u64 %at, %x4;
  setp.eq.u32 %is_base, %base, 7;
  ld.volatile.global.u64 %x3, [handles];
  @%is_base mov.u64 %at, %x3;
  mov.u32 %r14, mine;
  mov.u32 %r12, 0;
fill_local:
  mad.lo.u32 %r13, %r12, 8, %r14;
  cvt.u64.u32 %x6, %r12;
  add.u64 %x6, %x6, %x1;
  st.local.u64 [%r13], %x6;
  add.u32 %r12, %r12, 1;
  setp.lt.u32 %p1, %r12, 256;
  @%p1 bra fill_local;
)";

constexpr std::string_view kReady = R"(
  add.u64 %at, %at, %from;
  cvt.u32.u64 %as, %at;
  mov.u64 %v1, 0xbadbadbadbadbad;
  mov.u64 %v2, 0xbadbadbadbadbad;
  mov.u32 %w1, 0xbadbad; mov.u32 %w2, 0xbad; mov.u32 %w3, 1; mov.u32 %w4, 0xbad;
  cvt.u16.u32 %h1, %w1; mov.u16 %h2, %h1; mov.u16 %h3, %h1;
  mov.b128 %q1, {%v1, %v2}; mov.b128 %q2, {%v1, %v2};
  mov.f32 %f1, 0f3F800000; mov.f32 %f2, %f1;
  mov.f64 %d1, 0d3FF0000000000000; mov.f64 %d2, %d1;
  mov.u64 %v1, %v2;
  bar.sync 0;
)";

constexpr std::string_view kLocalCheck = R"(
  mov.u32 %r12, 0;
check_local:
  mad.lo.u32 %r13, %r12, 8, %r14;
  ld.volatile.local.u64 %x5, [%r13];
  cvt.u64.u32 %x6, %r12;
  add.u64 %x6, %x6, %x1;
  setp.ne.and.b64 %p1, %x5, %x6, %innocent;
  @%p1 mov.u32 %r10, 2;
  add.u32 %r12, %r12, 1;
  setp.lt.u32 %p1, %r12, 256;
  @%p1 bra check_local;
)";

// Parameters are looked at by generic addresses, since loads of .param may be made at any time.
constexpr std::string_view kEpilogue = R"(
  bar.sync 0;
  setp.ne.u32 %p2, %r2, 0;
  ld.volatile.shared.u64 %x5, [%r9];
  setp.ne.and.b64 %p1, %x5, %x2, %p2;
  @%p1 mov.u32 %r10, 3;
  mov.u32 %r11, 0xc0ffff00;
  mov.b64 %x7, {%r11, %r8};
  ld.volatile.u64 %x5, [%x10]; setp.ne.b64 %p1, %x5, %x7; @%p1 mov.u32 %r10, 4;
  add.u64 %x7, %x7, 1;
  ld.volatile.u64 %x5, [%x10+8]; setp.ne.b64 %p1, %x5, %x7; @%p1 mov.u32 %r10, 4;
  add.u64 %x7, %x7, 1;
  ld.volatile.u64 %x5, [%x10+16]; setp.ne.b64 %p1, %x5, %x7; @%p1 mov.u32 %r10, 4;
  add.u64 %x7, %x7, 1;
  ld.volatile.u64 %x5, [%x10+24]; setp.ne.b64 %p1, %x5, %x7; @%p1 mov.u32 %r10, 4;
  // What was read: this launch's pattern of another thread of the block, which is in local memory
  // alone.
  @SEES_LOCAL xor.b64 %x5, %v1, %x1;
  @SEES_LOCAL shr.u64 %x6, %x5, 20;
  @SEES_LOCAL setp.eq.b64 %p1, %x6, 0;
  @SEES_LOCAL shr.u64 %x6, %x5, 8;
  @SEES_LOCAL setp.ne.and.b64 %p1, %x6, 0, %p1;
  @SEES_LOCAL @%p1 mov.u32 %r10, 5;
  mov.u32 %r13, %ntid.x;
  mad.lo.u32 %r13, %r2, %r13, %r1;
  ld.param.u64 %x8, [out];
  mad.wide.u32 %x8, %r13, 16, %x8;
  mov.b64 %x9, {%r10, %r8};
  st.global.v2.u64 [%x8], {%x9, %v1};
  ret;
}
)";

class Maker {
 public:
  Maker(uint64_t seed, bool in_lanes) : random_(seed), in_lanes_(in_lanes) {}

  HostileModule Make(std::span<const Template> templates) {
    HostileModule made;
    std::string body;
    for (const Template& attempt : templates) {
      made.attempts.push_back(Instance(attempt));
      const size_t n = made.attempts.size() - 1;
      // By a guard, or by a branch round it.
      const bool guarded = std::ranges::count(made.attempts[n].text, ';') == 1 && random_.OneIn(2);
      body += fmt::format("  setp.ne.u32 %p4, %attempt, {0};\n  @%p4 bra not_{0};\n", n);
      body += guarded ? fmt::format("  @%hostile {}\n", made.attempts[n].text)
                      : fmt::format("  @%innocent bra not_{};\n  {}\n", n, made.attempts[n].text);
      body += fmt::format("not_{}:\n", n);
    }
    made.text = ".version 8.8\n.target sm_90\n.address_size 64\n";
    if (!in_lanes_) made.text += kFunctions;
    made.text +=
        ".visible .entry hostile(.param .u64 out, .param .u64 buffer, .param .u64 absolute,\n"
        "  .param .u64 delta, .param .u32 base, .param .u32 attempt, .param .u32 mask,\n"
        "  .param .u32 value, .param .u32 salt, .param .u32 none, .param .align 8 .b8 canary[32])\n"
        "{\n";
    made.text += kPrologue;
    if (!in_lanes_) {
      made.text += kLocalPrologue;
    }
    made.text += kReady;
    made.text += body;
    made.text += "  mov.u32 %r10, 1;\n";
    std::string epilogue(kEpilogue);
    if (in_lanes_) {
      // There is no local memory to see.
      for (size_t at; (at = epilogue.find("  @SEES_LOCAL")) != std::string::npos;)
        epilogue.erase(at, epilogue.find('\n', at) + 1 - at);
    } else {
      epilogue.insert(epilogue.find(";\n") + 2, kLocalCheck);
      for (size_t at; (at = epilogue.find("@SEES_LOCAL ")) != std::string::npos;)
        epilogue.erase(at, 12);
    }
    made.text += epilogue;
    return made;
  }

  std::vector<Template> Choose(size_t count) {
    std::vector<Template> chosen;
    bool has_targets = false;
    while (chosen.size() < count) {
      const Template& one = kTemplates[random_.Below(std::size(kTemplates))];
      if (in_lanes_ && (one.traits & kOnlyScalar) != 0) continue;
      // Its labels are there once.
      const bool is_branch = one.text.starts_with("brx");
      if (is_branch && has_targets) continue;
      has_targets = has_targets || is_branch;
      chosen.push_back(one);
    }
    if (!in_lanes_ && !has_targets) chosen.push_back(kTemplates[std::size(kTemplates) - 1]);
    return chosen;
  }

 private:
  HostileAttempt Instance(const Template& from) {
    HostileAttempt made;
    made.dereferences = (from.traits & kDereferences) != 0;
    const bool is_global = random_.OneIn(2);
    std::string offset;
    for (size_t k = 0; k < from.text.size(); ++k) {
      const char c = from.text[k];
      const char next = k + 1 < from.text.size() ? from.text[k + 1] : ' ';
      const auto numbered = [&](std::string_view name) {
        const bool has_number = next >= '1' && next <= '9';
        if (has_number) ++k;
        made.text += fmt::format("{}{}", name, has_number ? next : '1');
      };
      // Capitals that stand for something stand alone.
      const bool within_word = next >= 'A' && next <= 'Z';
      if (c == 'V' && !within_word) {
        numbered("%v");
      } else if (c == 'W') {
        numbered("%w");
      } else if (c == 'A') {
        made.text += "%at";
      } else if (c == 'S') {
        made.text += "%as";
      } else if (c == 'B') {
        made.text += "%buffer";
      } else if (c == 'G') {
        made.text += is_global ? ".global" : "";
      } else if (c == 'X') {
        made.offset = Offset();
        made.text += fmt::format("{}", made.offset);
      } else {
        made.text += c;
      }
    }
    return made;
  }

  int64_t Offset() {
    switch (random_.Below(4)) {
      case 0:
        return 0;
      case 1:
        return random_.Of({4, 8, 16, -4, -8, -16, 1, -1, 120, 1016});
      case 2:
        return random_.Of({4096, -4096, 16384, 65536, -65536, 1 << 20});
      default:
        return random_.Of({0x7ffffff0, -0x7ffffff0, 0x7fffffff, 0x40000000});
    }
  }

  Random random_;
  const bool in_lanes_;
};

constexpr size_t kAttempts = 20;

}  // namespace

HostileModule MakeHostileModule(uint64_t seed, bool in_lanes) {
  Maker maker(seed, in_lanes);
  return maker.Make(maker.Choose(kAttempts));
}

HostileModule MakeCompleteHostileModule(bool in_lanes, size_t part) {
  std::vector<Template> templates;
  for (const Template& one : kTemplates) {
    if (!in_lanes || (one.traits & kOnlyScalar) == 0) templates.push_back(one);
  }
  const size_t from = part * kAttempts;
  std::vector<Template> chosen(
      templates.begin() + static_cast<ptrdiff_t>(from),
      templates.begin() + static_cast<ptrdiff_t>(std::min(from + kAttempts, templates.size())));
  const Template& branch = kTemplates[std::size(kTemplates) - 1];
  if (!in_lanes && chosen.back().text != branch.text) chosen.push_back(branch);
  return Maker(part, in_lanes).Make(chosen);
}

size_t CompleteHostileParts(bool in_lanes) {
  const auto count = static_cast<size_t>(std::ranges::count_if(
      kTemplates, [&](const Template& t) { return !in_lanes || (t.traits & kOnlyScalar) == 0; }));
  return (count + kAttempts - 1) / kAttempts;
}

}  // namespace smolvm::emulation
