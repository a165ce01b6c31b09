#include "host-daemon/emulation/ptx/ir.h"

#include <bit>

namespace smolvm::emulation::ptx {
namespace {

uint64_t Truncate(uint64_t bits, unsigned width) {
  return width == 0 || width >= 64 ? bits : bits & ((uint64_t{1} << width) - 1);
}

uint64_t FloatBits(const Operand& operand, Type type) {
  const bool is_single = operand.kind == Operand::Kind::kFloat32;
  if (type == Type::kF32 && !is_single) {
    return std::bit_cast<uint32_t>(static_cast<float>(std::bit_cast<double>(operand.bits)));
  }
  if (type == Type::kF64 && is_single) {
    const auto single = std::bit_cast<float>(static_cast<uint32_t>(operand.bits));
    return std::bit_cast<uint64_t>(static_cast<double>(single));
  }
  return Truncate(operand.bits, BitsOf(type));
}

}  // namespace

uint64_t ImmediateBits(const Operand& operand, Type type) {
  if (type == Type::kPred) return operand.bits != 0 ? 1 : 0;
  if (operand.kind == Operand::Kind::kInteger) return Truncate(operand.bits, BitsOf(type));
  return FloatBits(operand, type);
}

std::string NameOf(const Register& reg) {
  std::string name(reg.prefix);
  if (reg.number != kNoIndex) name += std::to_string(reg.number);
  return name;
}

const Variable& VariableOf(const Module& module, const Function& function, Symbol symbol) {
  switch (symbol.kind) {
    case SymbolKind::kLocal:
      return function.variables[symbol.index];
    case SymbolKind::kParam:
      return function.params[symbol.index];
    case SymbolKind::kReturn:
      return function.returns[symbol.index];
    default:
      return module.variables[symbol.index];
  }
}

}  // namespace smolvm::emulation::ptx
