// PTX text to IR.
//
// Sources: PTX ISA 9.0, chapters 4 (Syntax), 5, 9, 10 (Special Registers) and 11 (Directives).
#pragma once

#include <string>
#include <string_view>

#include "host-daemon/emulation/ptx/ir.h"

namespace smolvm::emulation::ptx {

struct Diagnostic {
  enum class Code {
    kNone,
    kSyntax,              // CUDA_ERROR_INVALID_PTX
    kUnsupportedVersion,  // CUDA_ERROR_UNSUPPORTED_PTX_VERSION: .version is newer than
                          // kNewestVersion
    kUnsupportedTarget,   // CUDA_ERROR_UNSUPPORTED_PTX_VERSION: a .target that is not known
    kUnresolved,          // CUDA_ERROR_INVALID_PTX: an .extern that nothing defines (link.h)
    kDuplicate,           // CUDA_ERROR_INVALID_PTX: two definitions of one name
    kTooLarge,  // CUDA_ERROR_OUT_OF_MEMORY: more of something than the limits in limits.h allow
  };
  Code code = Code::kNone;
  uint32_t line = 0;  // from 1; 0: no line
  // "line 12: unexpected token ';' (expected an operand)": for the JIT error log.
  std::string message;
};

// 10 × major + minor of the PTX ISA.
inline constexpr int kNewestVersion = 90;

// False: `*diagnostic` says why, and `*module` is left unspecified. `text` may be anything; it ends
// at its first NUL, is copied, and is verified (verify.h). Time and memory are linear in its
// length.
bool Parse(std::string_view text, Module* module, Diagnostic* diagnostic);

}  // namespace smolvm::emulation::ptx
