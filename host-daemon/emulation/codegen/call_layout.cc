#include "host-daemon/emulation/codegen/call_layout.h"

#include <algorithm>

namespace smolvm::emulation::codegen {

using ptx::Variable;

namespace {
uint64_t AlignmentOf(const Variable& variable) {
  return std::clamp<uint64_t>(variable.alignment, 1, kCallBlockAlignment);
}
}  // namespace

uint64_t SizeOf(const Variable& param) {
  return param.space == ptx::StateSpace::kReg ? std::max<uint64_t>(1, ptx::BytesOf(param.type))
                                              : param.bytes;
}

ParamLayout LayOut(const std::vector<Variable>& variables) {
  ParamLayout layout;
  for (const Variable& variable : variables) {
    const uint64_t alignment = AlignmentOf(variable);
    layout.bytes = (layout.bytes + alignment - 1) / alignment * alignment;
    layout.offsets.push_back(layout.bytes);
    layout.bytes += SizeOf(variable);
  }
  return layout;
}

Signature SignatureOf(const ptx::Module& module, const ptx::Function& caller,
                      const ptx::Call& call) {
  if (call.callee.kind == ptx::Operand::Kind::kSymbol) {
    const ptx::Function& callee = module.functions[call.callee.symbol.index];
    return {&callee.returns, &callee.params};
  }
  if (call.prototype != ptx::kNoIndex) {
    const ptx::Prototype& prototype = caller.prototypes[call.prototype];
    return {&prototype.returns, &prototype.params};
  }
  if (call.targets != ptx::kNoIndex && !caller.call_targets[call.targets].functions.empty()) {
    const ptx::Function& first = module.functions[caller.call_targets[call.targets].functions[0]];
    return {&first.returns, &first.params};
  }
  return {};
}

uint64_t LayoutNumbers::Of(const std::vector<Variable>& returns,
                           const std::vector<Variable>& params) {
  std::vector<uint64_t> key;
  for (const auto* list : {&returns, &params}) {
    key.push_back(list->size());
    for (const Variable& variable : *list) {
      key.push_back(SizeOf(variable));
      key.push_back(AlignmentOf(variable));
    }
  }
  return numbers_.emplace(std::move(key), numbers_.size() + 1).first->second;
}

}  // namespace smolvm::emulation::codegen
