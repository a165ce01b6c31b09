// What the code of a kernel may reach in this process, and the proof that it reaches nothing else
// (software fault isolation).
//
// A kernel is hostile, and its code runs in the worker. Every address that it uses is one of
//   - a slot: an alloca of the function's own, at an offset that is known and lies inside it;
//   - a field of the contexts of runtime/context.h, or of the tables that they name;
//   - memory that is the kernel's own: a Checked. Only emit_checks.cc makes them, each behind a
//     bounds check or a proof.
// It calls its own functions, the helpers, intrinsics that touch no memory, and functions of the
// table of call targets whose layout was compared.
//
// FindEscape() holds finished IR against these rules, whoever wrote it and however. It looks at the
// code as it was emitted: LLVM's passes are trusted to keep its meaning.
#pragma once

#include <llvm/ADT/DenseMap.h>
#include <llvm/IR/Module.h>

#include <cstdint>
#include <string>

namespace smolvm::emulation::codegen {

// A pointer to memory that the kernel may access: `bytes` from it on.
class Checked {
 public:
  Checked() = default;
  llvm::Value* pointer() const { return pointer_; }
  explicit operator bool() const { return pointer_ != nullptr; }

 private:
  friend class CheckedMaker;  // of emit_checks.cc, and nowhere else
  explicit Checked(llvm::Value* pointer) : pointer_(pointer) {}
  llvm::Value* pointer_ = nullptr;
};

// Of one module: what FindEscape() takes for granted.
class Isolation {
 public:
  struct Region {
    uint64_t bytes = 0;
    bool is_writable = false;
  };
  // Where a called function finds its arguments and leaves its results.
  struct CallBlocks {
    uint64_t argument_bytes = 0;
    uint64_t result_bytes = 0;
  };

  // How many entries the table of variables has (BlockContext::variables).
  explicit Isolation(size_t variables) : variables_(variables) {}

  const Region* RegionAt(const llvm::Value* pointer) const {
    const auto found = regions_.find(pointer);
    return found == regions_.end() ? nullptr : &found->second;
  }
  const CallBlocks* BlocksOf(const llvm::Value* target) const {
    const auto found = targets_.find(target);
    return found == targets_.end() ? nullptr : &found->second;
  }
  size_t variables() const { return variables_; }

 private:
  friend class CheckedMaker;
  llvm::DenseMap<const llvm::Value*, Region> regions_;
  // Functions of the module, and pointers to some that were looked up.
  llvm::DenseMap<const llvm::Value*, CallBlocks> targets_;
  size_t variables_;
};

// Empty when the module keeps the rules; otherwise what breaks them.
std::string FindEscape(const llvm::Module& module, const Isolation& isolation);

}  // namespace smolvm::emulation::codegen
