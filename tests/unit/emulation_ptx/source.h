// PTX sources of tests.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "host-daemon/emulation/ptx/parse.h"

namespace smolvm::emulation::ptx {

inline constexpr std::string_view kHeader = ".version 9.0\n.target sm_90\n.address_size 64\n";

// A kernel with registers of all kinds around a body: %p, %c (8), %h, %r, %rd, %f, %d; parameter
// "p". The body starts in line 6.
inline std::string Kernel(std::string_view body, std::string_view declarations = "") {
  std::string text(kHeader);
  text += declarations;
  text += ".visible .entry k(.param .u64 p) {\n";
  text +=
      ".reg .pred %p<9>; .reg .b8 %c<9>; .reg .b16 %h<9>; .reg .b32 %r<99>; .reg .b64 %rd<99>; "
      ".reg .f32 %f<99>; .reg .f64 %d<99>;\n";
  text += body;
  text += "\n}\n";
  return text;
}

inline Module ParseOrFail(std::string_view text) {
  Module module;
  Diagnostic diagnostic;
  EXPECT_TRUE(Parse(text, &module, &diagnostic)) << diagnostic.message << "\n" << text;
  return module;
}

// Of the first kernel; null when it does not parse.
inline Instruction FirstOf(std::string_view body) {
  const Module module = ParseOrFail(Kernel(body));
  for (const Function& function : module.functions) {
    if (function.is_entry) {
      // The module's text goes with it: names are not looked at afterwards.
      return function.body.empty() ? Instruction() : function.body[0];
    }
  }
  return Instruction();
}

inline Diagnostic ErrorOf(std::string_view text) {
  Module module;
  Diagnostic diagnostic;
  EXPECT_FALSE(Parse(text, &module, &diagnostic)) << "accepted:\n" << text;
  return diagnostic;
}

}  // namespace smolvm::emulation::ptx
