// The recursive-descent parser behind Parse(). Private to this folder.
//
// One class, spread over files by what they parse: parse.cc (module, directives), parse_function.cc
// (signatures, bodies, labels), parse_variable.cc (declarations, initialisers),
// parse_instruction.cc (instructions, operands), parse_expression.cc (constants), scope.cc (names).
// Functions that parse return false once an error is recorded; their callers return false at once.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "host-daemon/emulation/ptx/ir.h"
#include "host-daemon/emulation/ptx/lexer.h"
#include "host-daemon/emulation/ptx/parse.h"
#include "host-daemon/emulation/ptx/scope.h"

namespace smolvm::emulation::ptx {

// A folded constant expression.
struct Constant {
  Operand::Kind kind = Operand::Kind::kInteger;  // or kFloat32, kFloat64
  bool is_unsigned = false;
  uint64_t bits = 0;
};

class Parser {
 public:
  // Token texts and the module's names point into `text`, which the module owns already.
  Parser(std::string_view text, Module* module, Diagnostic* diagnostic)
      : lexer_(text), module_(module), diagnostic_(diagnostic) {}

  bool Run();

 private:
  // A reference to a label, resolved when the scope that it was made in closes.
  struct PendingLabel {
    std::string_view name;
    uint32_t line;
    bool in_targets;  // of BranchTargets `owner`, label `slot`; else of instruction `owner`,
                      // operand `slot`
    uint32_t owner;
    uint32_t slot;
  };
  // A symbol in an initialiser, resolved at the module's end.
  struct PendingRelocation {
    std::string_view name;
    uint32_t line;
    uint32_t variable;
    size_t relocation;
  };
  struct Alias {
    std::string_view name;
    std::string_view target;
    uint32_t line;
  };
  // What stands before the names in a declaration.
  struct Declaration {
    Variable variable;
    bool has_type = false;
    bool has_alignment = false;
  };
  // An initialiser being filled in: [cursor, end) of the variable's bytes; end 0 is open.
  struct Extent {
    uint64_t begin;
    uint64_t end;
  };

  // Tokens.
  const Token& peek() const { return lexer_.peek(); }
  Token Take() { return lexer_.Take(); }
  bool At(std::string_view text) const { return peek().Is(text); }
  bool Accept(std::string_view text);
  bool Expect(std::string_view text);
  bool ExpectName(std::string_view* name);
  bool ExpectCount(uint64_t most, uint64_t* value);

  // Errors. All return false.
  bool Fail(Diagnostic::Code code, uint32_t line, std::string message);
  bool FailAt(uint32_t line, std::string message);
  bool FailHere(std::string_view expected);  // at the current token

  // Module.
  bool ParseHeader();
  bool ParseVersion();
  bool ParseTarget();
  bool ParseStatement();
  bool ParseLinkage(Linkage* linkage);
  bool ParseAlias();
  bool ParsePragma(std::vector<std::string_view>* pragmas);
  bool SkipSection();
  bool AcceptDebugDirective(bool* ok);
  bool ResolveRelocations();
  bool ResolveAliases();

  // Functions.
  bool ParseFunction(Linkage linkage, bool is_entry);
  bool ParseSignature(Function* function);
  bool ParseParams(std::vector<Variable>* params, Function* function, uint64_t* bytes);
  bool ParseParam(Function* function, Variable* param);
  static void AddRegisterParam(Variable param, Function* function, std::vector<Variable>* params);
  bool ParseFunctionDirectives(Function* function);
  bool ParseTuning(std::string_view word, Function* function, bool* known);
  bool ParseTriple(std::array<uint32_t, 3>* triple);
  bool DeclareFunction(Function function, uint32_t* index);
  bool ParseBody(uint32_t index);
  bool ParseBodyStatement();
  bool ParseBodyDirective();
  bool ParseLabel(const Token& name);
  bool ParseBranchTargets(std::string_view name);
  bool ParseCallTargets(std::string_view name);
  bool ParsePrototype(std::string_view name);
  bool DeclareParams(SymbolKind kind, const std::vector<Variable>& params);
  bool OpenScope();
  bool CloseScope();
  void SetLabel(const PendingLabel& pending, uint32_t label);
  void EndBody();

  // Variables.
  bool ParseDeclaration(Linkage linkage);
  bool ParseSpecifiers(Declaration* declaration);
  bool ParsePointerAttributes();
  bool ParseAttributes(Variable* variable);
  bool ParseAlignment(uint32_t* alignment);
  bool ParseRegisterNames(const Variable& prototype);
  bool DeclareRegisterRange(std::string_view prefix, const Variable& prototype, uint32_t line);
  bool DeclareRegister(std::string_view name, const Variable& prototype, uint32_t line);
  bool ParseDeclarator(const Variable& prototype, Variable* variable);
  bool ParseDimensions(Variable* variable, std::vector<uint64_t>* strides);
  bool DeclareVariable(Variable variable, uint32_t* index);
  bool ParseInitializer(std::vector<uint64_t> strides, uint32_t variable);
  bool ParseInitializerList(const std::vector<uint64_t>& strides, size_t level, Extent extent,
                            uint32_t variable, uint64_t* end);
  bool ParseInitializerValue(uint64_t offset, uint32_t variable);
  bool ParseInitializerSymbol(uint64_t offset, uint64_t mask, uint32_t variable);
  bool StoreInitial(uint64_t offset, uint64_t bits, size_t bytes, uint32_t variable);
  bool SkipInitializer();

  // Instructions.
  bool ParseGuard(Instruction* instruction);
  bool ParseInstruction(const Token& first, Instruction instruction);
  bool ParseMnemonicTokens(const Token& first, std::string_view* mnemonic);
  bool ParseOperands(Instruction* instruction);
  bool TakeCachePolicy(Instruction* instruction);
  bool ParseOperand(Instruction* instruction, bool may_nest, Operand* operand);
  bool ParseNamedOperand(Instruction* instruction, Operand* operand);
  bool ParseSpecial(const Token& name, Instruction* instruction, Operand* operand);
  bool ParseVectorRegister(const Name& name, Instruction* instruction, Operand* operand);
  bool ParseSelector(Operand* operand);
  bool ParseVector(Instruction* instruction, Operand* operand);
  bool ParseIndex(const Instruction& instruction, Operand* operand);
  void AddIndexing(const Instruction& instruction, uint32_t reg, uint64_t bytes, Operand* operand);
  bool ParseAddress(Instruction* instruction, Operand* operand);
  bool ParseAddressBase(Operand* operand);
  bool ParseOffset(int64_t* offset);
  bool ParseBranch(Instruction* instruction);
  bool ParseIndirectBranch(Instruction* instruction);
  bool ParseCall(Instruction* instruction);
  bool ParseCallList(std::vector<Operand>* list);
  bool ParseCallee(Call* call);
  bool ParseCallSignature(Call* call);

  // Constants.
  bool ParseConstant(Constant* constant);
  bool ParseInteger(int64_t* value);
  bool ParseBinary(int precedence, int depth, Constant* constant);
  bool ParseConditional(int depth, Constant* constant);
  bool ParseUnary(int depth, Constant* constant);
  bool ParsePrimary(int depth, Constant* constant);
  bool ParseCast(int depth, Constant* constant, bool* is_cast);

  // Names.
  bool Declare(std::string_view name, const Name& what, uint32_t line);
  // A register of a range is made at its first use.
  bool Lookup(std::string_view name, Name* found);
  uint32_t AddRegister(Register reg);
  // `count` registers from `index` on: one, or a vector.
  static Name RegisterName(uint32_t index, uint32_t count);
  Name AddRegisters(const Register& reg, uint32_t count);

  Function& function() { return module_->functions[current_]; }
  bool in_function() const { return current_ != kNoIndex; }
  // Whether a .param declared here is an argument of a call, rather than part of a signature.
  bool in_function_body() const { return in_function() && !in_prototype_; }

  Lexer lexer_;
  Module* module_;
  Diagnostic* diagnostic_;
  uint32_t current_ = kNoIndex;  // the function whose body is being parsed
  std::unordered_map<std::string_view, Symbol> globals_;
  std::vector<NameScope> scopes_;
  std::vector<std::vector<PendingLabel>> pending_labels_;  // one for each scope
  std::vector<PendingRelocation> pending_relocations_;
  std::vector<Alias> aliases_;
  bool in_prototype_ = false;
  uint64_t initial_bytes_ = 0;
};

}  // namespace smolvm::emulation::ptx
