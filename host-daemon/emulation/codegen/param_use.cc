#include "host-daemon/emulation/codegen/param_use.h"

#include <algorithm>
#include <map>

namespace smolvm::emulation::codegen {
namespace {

using ptx::Instruction;
using ptx::Opcode;
using ptx::Operand;
using ptx::StateSpace;

// A larger variable counts as unwritten.
constexpr uint64_t kMostBytes = 1024;

class Finder {
 public:
  explicit Finder(const ptx::Function& function)
      : f_(function), unwritten_(function.variables.size(), false) {}

  std::vector<bool> Run(const ptx::Cfg& cfg) {
    for (const ptx::Block& block : cfg.blocks) {
      written_.clear();
      for (uint32_t k = block.begin; k < block.end; ++k) Look(f_.body[k]);
    }
    return std::move(unwritten_);
  }

 private:
  void Look(const Instruction& i) {
    const uint64_t bytes = ptx::BytesOf(i.type()) * i.modifiers.vector;
    const bool is_param = i.modifiers.space == StateSpace::kParam;
    if (i.opcode == Opcode::kSt && is_param && !i.guarded()) Write(i.operands[0], bytes);
    if (i.opcode == Opcode::kLd && is_param) Read(i.operands[1], bytes);
    if (i.opcode != Opcode::kCall) return;
    const ptx::Call& call = f_.calls[i.call];
    for (const Operand& argument : call.arguments) Read(argument, UINT64_MAX);
    if (i.guarded()) return;
    for (const Operand& result : call.returns) Write(result, UINT64_MAX);
  }

  // Null for what is no variable of ours.
  const ptx::Variable* VariableOf(const Operand& operand) const {
    const bool is_symbol =
        operand.kind == Operand::Kind::kSymbol ||
        (operand.kind == Operand::Kind::kAddress && operand.base == Operand::AddressBase::kSymbol);
    if (!is_symbol || operand.symbol.kind != ptx::SymbolKind::kLocal) return nullptr;
    return &f_.variables[operand.symbol.index];
  }

  // The part of the variable that `bytes` from the operand's offset on are.
  static std::pair<uint64_t, uint64_t> Part(const ptx::Variable& variable, const Operand& operand,
                                            uint64_t bytes) {
    const uint64_t begin =
        std::min(static_cast<uint64_t>(std::max<int64_t>(operand.offset, 0)), variable.bytes);
    return {begin, begin + std::min(bytes, variable.bytes - begin)};
  }

  void Write(const Operand& operand, uint64_t bytes) {
    const ptx::Variable* variable = VariableOf(operand);
    if (variable == nullptr || variable->bytes > kMostBytes) return;
    const auto [begin, end] = Part(*variable, operand, bytes);
    std::vector<bool>& written = written_[operand.symbol.index];
    written.resize(variable->bytes);
    std::fill(written.begin() + static_cast<ptrdiff_t>(begin),
              written.begin() + static_cast<ptrdiff_t>(end), true);
  }

  void Read(const Operand& operand, uint64_t bytes) {
    const ptx::Variable* variable = VariableOf(operand);
    if (variable == nullptr || unwritten_[operand.symbol.index]) return;
    const auto [begin, end] = Part(*variable, operand, bytes);
    const auto found = written_.find(operand.symbol.index);
    const bool is_written = found != written_.end() &&
                            std::all_of(found->second.begin() + static_cast<ptrdiff_t>(begin),
                                        found->second.begin() + static_cast<ptrdiff_t>(end),
                                        [](bool bit) { return bit; });
    if (!is_written) unwritten_[operand.symbol.index] = true;
  }

  const ptx::Function& f_;
  std::map<uint32_t, std::vector<bool>> written_;  // in this block: by variable, each byte
  std::vector<bool> unwritten_;
};

}  // namespace

std::vector<bool> ReadUnwritten(const ptx::Function& function, const ptx::Cfg& cfg) {
  return Finder(function).Run(cfg);
}

}  // namespace smolvm::emulation::codegen
