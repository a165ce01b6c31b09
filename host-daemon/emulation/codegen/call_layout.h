// Where the parameters of a call lie: one block for arguments and one for results.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "host-daemon/emulation/ptx/ir.h"

namespace smolvm::emulation::codegen {

struct ParamLayout {
  std::vector<uint64_t> offsets;
  uint64_t bytes = 0;
};
ParamLayout LayOut(const std::vector<ptx::Variable>& variables);
uint64_t SizeOf(const ptx::Variable& param);

// What a call passes and expects.
struct Signature {
  const std::vector<ptx::Variable>* returns = nullptr;
  const std::vector<ptx::Variable>* params = nullptr;
  explicit operator bool() const { return params != nullptr; }
};
// Of the function that is named, or of the prototype or the targets given; none when neither is.
Signature SignatureOf(const ptx::Module& module, const ptx::Function& caller,
                      const ptx::Call& call);

// Numbers signatures so that two have one number only when every size and alignment is the same:
// only then may a function be called through a prototype. From 1.
class LayoutNumbers {
 public:
  uint64_t Of(const std::vector<ptx::Variable>& returns, const std::vector<ptx::Variable>& params);

 private:
  std::map<std::vector<uint64_t>, uint64_t> numbers_;
};

// The blocks of arguments and results begin at multiples of this.
inline constexpr uint64_t kCallBlockAlignment = 16;
// What a block takes of the caller's frame.
inline uint64_t CallBlockBytes(const ParamLayout& layout) {
  return (layout.bytes + kCallBlockAlignment - 1) / kCallBlockAlignment * kCallBlockAlignment;
}

}  // namespace smolvm::emulation::codegen
