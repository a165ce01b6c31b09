// Checks that make a module safe to translate. Parse() and Link() have run them.
//
// Of every instruction:
//   - the number of operands is the opcode's (opcodes.def), with those that a modifier asks for and
//   no others; those that must have two types have them;
//   - a destination is a register, "_", or a vector of these; "p|q" stands only where it may;
//   - guards, and operands that the ISA makes predicates, are predicate registers (sources also
//   immediates), and only
//     they are negated;
//   - addresses stand where the ISA has them: a 32- or 64-bit register, a symbol of the
//   instruction's state space
//     (any, when it is generic), or a constant;
//   - vectors have as many members as .v2, .v4 or .v8 says; a mov's fill the other side exactly.
// Of operands, by the opcode's shape (verify.cc), which covers all but the kRaw rows of
// opcodes.def:
//   - a register is as wide as its operand's type; in ld, st and cvt it may be wider (PTX
//   ISA 9.4.1). Packed and
//     16-bit floats, and .b types, take registers of any kind; .f32 and .f64 take floating or .b
//     ones, integers integer or .b ones;
//   - an immediate is a floating literal where the type is .f32 or .f64, and an integer where it is
//   an integer;
//   - special registers and symbols stand in mov (symbols also in cvta, isspacep, mapa and
//   getctarank); a special
//     register is at least as wide as the mov.
// Of immediates: that they are in the range that the ISA gives (immediates.h).
// Of calls: a known function that is no kernel, or a register with a prototype or targets; as many
// arguments and
//   results as its signature has, each as large.
// Not checked: whether the ISA has the instruction for that type (add.b32), for .target or with
// those modifiers together. A code generator refuses what it does not know.
#pragma once

#include "host-daemon/emulation/ptx/ir.h"
#include "host-daemon/emulation/ptx/parse.h"

namespace smolvm::emulation::ptx {

// False: `*diagnostic` says what and where.
bool Verify(const Module& module, Diagnostic* diagnostic);

}  // namespace smolvm::emulation::ptx
