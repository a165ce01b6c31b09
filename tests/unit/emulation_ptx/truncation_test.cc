// Every truncation, and every byte damaged, of a PTX source that has something of everything.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "host-daemon/emulation/ptx/cfg.h"
#include "tests/unit/emulation_ptx/source.h"

namespace smolvm::emulation::ptx {
namespace {

constexpr std::string_view kEverything = R"(.version 9.0
.target sm_90, debug
.address_size 64
.file 1 "a.cu"
.func (.reg .b32 o) g(.reg .b32 i) { mov.b32 o, i; ret; }
.extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);
.visible .global .align 8 .u64 t[2] = {g, generic(u)+4};
.global .b8 u[2][4] = {{1, 0xFF(t)}, {-3, 'x'}};
.extern .shared .align 16 .b8 d[];
.visible .entry k(.param .u64 .ptr .align 8 p, .param .align 8 .b8 s[24]) .maxntid 32, 2 {
  .reg .pred %p<9>; .reg .b32 %r<99>; .reg .b64 %rd<9>; .reg .v2 .f32 v;
  .loc 1 2 3
  L: @!%p1 bra M;
  ld.global.v2.f32 v, [%rd1+-8];
  T: .branchtargets L, M;
  brx.idx %r1, T;
  { .param .b32 a; st.param.b32 [a], 0f3F800000; call (%r2), g, (%r1); }
  tex.2d.v4.f32.f32 {v.x, v.y, _, _}, [%rd1, {v.x, v.y}];
  setp.lt.and.s32 %p1|%p2, %r1, -(3+4)*2, !%p3;
  M: shfl.sync.up.b32 %r1|%p1, %r2, 1, 0, 0xffffffff; }
)";

std::string Valid() {
  std::string text(kEverything);
  text.replace(text.find("'x'"), 3, "120");  // an unexpected character, for the damaged ones only
  return text;
}

void ParseAnything(const std::string& text) {
  // Exactly as long as the text: ASan sees a read behind it.
  const auto block = std::make_unique<char[]>(text.size());
  text.copy(block.get(), text.size());
  Module module;
  Diagnostic diagnostic;
  if (!Parse({block.get(), text.size()}, &module, &diagnostic)) {
    EXPECT_NE(diagnostic.code, Diagnostic::Code::kNone);
    EXPECT_FALSE(diagnostic.message.empty());
    return;
  }
  for (const Function& function : module.functions) {
    if (function.has_body) BuildCfg(function);
  }
}

TEST(Truncation, NeverCrashes) {
  ParseOrFail(Valid());
  for (size_t size = 0; size <= kEverything.size(); ++size) {
    ParseAnything(std::string(kEverything.substr(0, size)));
    ParseAnything(Valid().substr(0, size));
  }
}

TEST(Damage, NeverCrashes) {
  const std::string valid = Valid();
  constexpr std::string_view kBytes = "\xFF;{}()[]<.,%0-:\"";
  for (size_t at = 0; at < valid.size(); ++at) {
    for (const char byte : kBytes) {
      std::string damaged = valid;
      damaged[at] = byte;
      ParseAnything(damaged);
    }
    std::string shorter = valid;
    shorter.erase(at, 1);
    ParseAnything(shorter);
  }
}

}  // namespace
}  // namespace smolvm::emulation::ptx
