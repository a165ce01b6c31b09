// PTX as data: what the parser makes, passes change, and code generators and the reference
// interpreter read.
//
// Shape: Module ▸ Function ▸ Instruction ▸ Operand, all by value, in vectors; one refers to another
// by its index. Registers, variables and labels of nested `{ }` scopes are lifted into their
// function: the scopes themselves are gone. Everything is still close to the source: one
// Instruction is one PTX instruction, in order, with its guard. Basic blocks are computed over it
// (cfg.h), not stored in it.
//
// Guarantees of a module that Parse() (and Link()) returned, on which consumers may rely without
// checks:
//   - every index lies in its vector; every label points at an instruction; a body with code ends
//   in an instruction
//     that does not fall through (an implicit `ret` is appended);
//   - operand counts are those of opcodes.def; types and modifiers are ones that the opcode takes
//   (kRaw rows excepted);
//   - what verify.h states about operand kinds and register widths.
//
// Lifetime: string_views point into Module::sources, which the module owns, so they live as long as
// the module (moving it included). Threads: plain data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "host-daemon/emulation/ptx/opcode.h"
#include "host-daemon/emulation/ptx/types.h"

namespace smolvm::emulation::ptx {

inline constexpr uint32_t kNoIndex = UINT32_MAX;

// What a name stands for.
enum class SymbolKind : uint8_t {
  kVariable,  // Module::variables
  kLocal,     // Function::variables
  kParam,     // Function::params
  kReturn,    // Function::returns
  kFunction,  // Module::functions
};

struct Symbol {
  SymbolKind kind = SymbolKind::kVariable;
  uint32_t index = kNoIndex;
  bool operator==(const Symbol&) const = default;
};

struct Operand {
  enum class Kind : uint8_t {
    kNone,
    kRegister,  // index: Function::registers; negated: "!%p"
    kInteger,   // bits: two's complement, 64-bit; also WARP_SZ and folded constant expressions
    kFloat32,   // bits: of a 0f… literal
    kFloat64,   // bits: of a 0d… or decimal literal
    kSymbol,    // the address of `symbol` (in its own state space) plus `offset`
    kSpecial,   // index: enum Special; component
    kAddress,   // "[base+offset]", see AddressBase
    kVector,    // "{a, b}": the `count` operands from `index` in Instruction::elements
    kGroup,     // "[tex, sampler, {x, y}]": likewise; its own vectors lie in the same elements
    kLabel,     // index: Function::labels
    kTargets,   // index: Function::branch_targets
    kSink,      // "_"
  };
  enum class AddressBase : uint8_t { kAbsolute, kRegister, kSymbol };

  Kind kind = Kind::kNone;
  bool negated = false;
  AddressBase base =
      AddressBase::kAbsolute;           // kAddress: nothing, the register `index`, or `symbol`
  Selector selector = Selector::kNone;  // kRegister in video instructions
  uint8_t component = 0;  // kSpecial: 0 … 3 for .x … .w, or the number in "%envreg2"
  uint32_t index = kNoIndex;
  uint32_t count = 0;
  Symbol symbol;
  uint64_t bits = 0;
  int64_t offset = 0;

  bool is_register() const { return kind == Kind::kRegister; }
  bool is_immediate() const {
    return kind == Kind::kInteger || kind == Kind::kFloat32 || kind == Kind::kFloat64;
  }
  Special special() const { return static_cast<Special>(index); }
};

// An immediate as the bits of a value of `type`, which the ISA's rules for constants decide (PTX
// ISA 4.5): integers are truncated to the type's width, floating literals rounded to it. For .b
// types a literal's own bits.
uint64_t ImmediateBits(const Operand& operand, Type type);

struct Modifiers {
  Rounding rounding = Rounding::kNone;
  Half half = Half::kNone;
  Compare compare = Compare::kNone;
  Bool boolean = Bool::kNone;
  Reduction reduction = Reduction::kNone;
  StateSpace space = StateSpace::kNone;  // cvta.to.X and cvta.X: X; isspacep: the space asked about
  StateSpace source_space = StateSpace::kNone;  // the second one written: cp.async.shared.global
  Order order = Order::kNone;
  Scope scope = Scope::kNone;
  Cache cache = Cache::kNone;
  Lane lane = Lane::kNone;
  Vote vote = Vote::kNone;
  Permute permute = Permute::kNone;
  Test test = Test::kNone;
  Direction direction = Direction::kNone;
  Clamp clamp = Clamp::kNone;
  Geometry geometry = Geometry::kNone;
  uint8_t vector = 1;  // .v2, .v4, .v8
  bool ftz : 1 = false;
  bool sat : 1 = false;
  bool satfinite : 1 = false;
  bool relu : 1 = false;
  bool approx : 1 = false;
  bool full : 1 = false;
  bool cc : 1 = false;
  bool nan : 1 = false;  // .NaN
  bool xorsign : 1 = false;
  bool abs : 1 = false;
  bool oob : 1 = false;
  bool shiftamt : 1 = false;
  bool sync : 1 = false;     // shfl, vote, match, redux, elect
  bool aligned : 1 = false;  // "bar" implies it, "barrier" does not
  bool nc : 1 = false;
  bool to : 1 = false;  // cvta.to
  bool noftz : 1 = false;
  bool uni : 1 = false;
  bool scaled : 1 = false;      // cvt: .scaled::n2::ue8m0
  bool po : 1 = false;          // video: plus one
  bool cache_hint : 1 = false;  // .L2::cache_hint: a cache policy was the last operand
  uint8_t video_shift = 0;      // video: .shr7, .shr15
};

struct Instruction {
  Opcode opcode = Opcode::kTrap;
  uint8_t type_count = 0;
  std::array<Type, 5> types{};  // in order: cvt.f32.s32 is {kF32, kS32}
  bool guard_negated = false;   // "@!%p"
  uint32_t guard = kNoIndex;    // "@%p": a register; kNoIndex: always
  uint32_t line = 0;            // in its source, from 1
  uint32_t call = kNoIndex;     // kCall: Function::calls
  Modifiers modifiers;
  std::string_view text;  // the mnemonic as written: "ld.global.nc.v4.f32"
  // As written, destinations first; but without the policy of .L2::cache_hint, which decides
  // nothing that a program can see.
  std::vector<Operand> operands;
  // The q of "p|q" in setp, the p of "d|p" in shfl, match, elect, lop3 and redux. A register or a
  // sink, or kNone.
  Operand second_destination;
  // Members of the vectors and groups among `operands`.
  std::vector<Operand> elements;

  Type type() const { return types[0]; }
  // Conversions and other two-type instructions; the same as type() when only one is written.
  Type source_type() const { return type_count > 1 ? types[1] : types[0]; }
  bool guarded() const { return guard != kNoIndex; }
  // Of a kVector or kGroup operand of this instruction.
  std::span<const Operand> ElementsOf(const Operand& operand) const {
    return std::span(elements).subspan(operand.index, operand.count);
  }
};

struct Register {
  std::string_view prefix;     // "%r" of "%r<19>", or the whole name
  uint32_t number = kNoIndex;  // 7 of "%r7"; kNoIndex for a plain name
  Type type = Type::kNone;
};
std::string NameOf(const Register& reg);

// A pointer in a variable's initialiser.
struct Relocation {
  uint64_t offset;  // bytes into the variable
  uint8_t bytes;  // how many bytes of the address are stored, from `shift` on: 8, or 4 or fewer of
                  // mask()
  uint8_t shift;  // in bits; "mask(sym, 0xFF00)" stores bits 8 to 15
  bool is_generic;  // generic(sym): converted to the generic address space; functions count as
                    // generic
  Symbol symbol;    // kVariable or kFunction
  int64_t addend;
};

struct Variable {
  std::string_view name;
  StateSpace space = StateSpace::kNone;  // a parameter of a .func may be kReg
  Type type = Type::kNone;
  Linkage linkage = Linkage::kNone;
  uint8_t vector = 1;  // .v2, .v4
  bool is_array = false;
  bool is_unsized =
      false;  // "x[]": extern shared memory, or completed by another module; bytes is 0
  bool is_managed = false;  // .attribute(.managed)
  bool has_initializer = false;
  uint32_t reg = kNoIndex;  // kReg parameters: Function::registers
  uint32_t alignment = 1;   // .align, or the type's
  uint64_t bytes = 0;       // whole size
  // Parameters: where in the packed block, each at its own alignment.
  uint64_t offset = 0;
  // The initialiser's first bytes; what is left of `bytes` is zero.
  std::vector<std::byte> initial;
  std::vector<Relocation> relocations;
  uint32_t line = 0;
};

struct Label {
  std::string_view name;
  uint32_t instruction = 0;
};

// .branchtargets
struct BranchTargets {
  std::string_view name;
  std::vector<uint32_t> labels;
};

// The signature of an indirect call: .callprototype. Its parameters have no names and no registers.
struct Prototype {
  std::string_view name;
  std::vector<Variable> returns;
  std::vector<Variable> params;
  bool noreturn = false;
};

// .calltargets
struct CallTargets {
  std::string_view name;
  std::vector<uint32_t> functions;
};

struct Call {
  Operand callee;  // kSymbol of a function, or a register
  // .param variables (kSymbol, kLocal … kReturn), registers or, as arguments, immediates.
  std::vector<Operand> returns;
  std::vector<Operand> arguments;
  uint32_t prototype = kNoIndex;  // Function::prototypes, of an indirect call
  uint32_t targets = kNoIndex;    // Function::call_targets, of an indirect call
};

struct Function {
  std::string_view name;
  bool is_entry = false;
  bool has_body = false;
  bool noreturn = false;
  Linkage linkage = Linkage::kNone;
  // ".alias": this function is another name of that one, and has no body. No operand refers to it
  // any more.
  uint32_t alias_of = kNoIndex;
  std::vector<Variable> returns;
  std::vector<Variable> params;
  uint64_t param_bytes = 0;  // of the packed block
  uint64_t return_bytes = 0;
  std::vector<Register> registers;
  std::vector<Variable> variables;  // .local, .shared, and .param of calls
  std::vector<Instruction> body;
  std::vector<Label> labels;
  std::vector<BranchTargets> branch_targets;
  std::vector<CallTargets> call_targets;
  std::vector<Prototype> prototypes;
  std::vector<Call> calls;
  // Performance and launch-bound directives; 0: not given.
  std::array<uint32_t, 3> required_block{};    // .reqntid
  std::array<uint32_t, 3> max_block{};         // .maxntid
  std::array<uint32_t, 3> required_cluster{};  // .reqnctapercluster
  uint32_t min_blocks_per_sm = 0;              // .minnctapersm
  uint32_t max_registers = 0;                  // .maxnreg
  bool explicit_cluster = false;
  std::vector<std::string_view> pragmas;
  uint32_t line = 0;
};

struct Module {
  // What string_views point into: one text for each PTX source.
  std::vector<std::shared_ptr<const std::string>> sources;
  int version = 0;            // 10 × major + minor: 90
  int target = 0;             // 90 of sm_90a
  char target_suffix = '\0';  // 'a', 'f' or none
  bool debug = false;         // .target …, debug
  std::vector<Variable> variables;
  std::vector<Function> functions;

  Module() = default;
  Module(Module&&) = default;
  Module& operator=(Module&&) = default;
  Module(const Module&) = default;
  Module& operator=(const Module&) = default;
};

// The variable that a kVariable, kLocal, kParam or kReturn symbol names.
const Variable& VariableOf(const Module& module, const Function& function, Symbol symbol);

}  // namespace smolvm::emulation::ptx
