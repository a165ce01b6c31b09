// An IRBuilder for one thread or for several at once.
//
// A value of several threads ("lanes") is a vector with an element for each; one that is the same
// for all of them stays a scalar. Operations take any mixture and widen scalars where they meet
// vectors, so that what translates arithmetic is written once, in terms of element types, for both.
// With scalars alone it is llvm::IRBuilder.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <initializer_list>

namespace smolvm::emulation::codegen {

class LaneBuilder : public llvm::IRBuilder<> {
  using V = llvm::Value*;
  using Base = llvm::IRBuilder<>;

 public:
  using Base::Base;

  // For slots and the contexts; what is a kernel's own memory goes by Checked (emit_checks.cc).
  // FindEscape() looks at all of it.
  Base& raw() { return *this; }

  static bool IsLanes(const llvm::Value* value) { return value->getType()->isVectorTy(); }
  // `type` with as many elements as `like` has.
  static llvm::Type* ShapedAs(const llvm::Value* like, llvm::Type* type) {
    const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(like->getType());
    if (vector == nullptr) return type;
    return llvm::FixedVectorType::get(type->getScalarType(), vector->getNumElements());
  }
  V Widened(V value, const llvm::Value* like) {
    const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(like->getType());
    if (vector == nullptr || IsLanes(value)) return value;
    return CreateVectorSplat(vector->getNumElements(), value);
  }
  // Gives all of them one shape.
  void Match(std::initializer_list<V*> values) {
    for (V* value : values) {
      if (!IsLanes(*value)) continue;
      for (V* other : values) *other = Widened(*other, *value);
      return;
    }
  }

#define SMOLVM_BINARY(Name)  \
  V Name(V x, V y) {         \
    Match({&x, &y});         \
    return Base::Name(x, y); \
  }
#define SMOLVM_BINARY_OR_CONSTANT(Name) \
  SMOLVM_BINARY(Name)                   \
  V Name(V x, uint64_t y) { return Base::Name(x, y); }
  SMOLVM_BINARY(CreateAdd)
  SMOLVM_BINARY(CreateSub)
  SMOLVM_BINARY(CreateMul)
  SMOLVM_BINARY(CreateUDiv)
  SMOLVM_BINARY(CreateSDiv)
  SMOLVM_BINARY(CreateURem)
  SMOLVM_BINARY(CreateSRem)
  SMOLVM_BINARY(CreateFAdd)
  SMOLVM_BINARY(CreateFSub)
  SMOLVM_BINARY(CreateFMul)
  SMOLVM_BINARY(CreateFDiv)
  SMOLVM_BINARY(CreateXor)
  SMOLVM_BINARY_OR_CONSTANT(CreateAnd)
  SMOLVM_BINARY_OR_CONSTANT(CreateOr)
  SMOLVM_BINARY_OR_CONSTANT(CreateShl)
  SMOLVM_BINARY_OR_CONSTANT(CreateLShr)
  SMOLVM_BINARY_OR_CONSTANT(CreateAShr)
  SMOLVM_BINARY(CreateICmpEQ)
  SMOLVM_BINARY(CreateICmpNE)
  SMOLVM_BINARY(CreateICmpULT)
  SMOLVM_BINARY(CreateICmpUGT)
  SMOLVM_BINARY(CreateICmpUGE)
  SMOLVM_BINARY(CreateICmpSLT)
  SMOLVM_BINARY(CreateICmpSGE)
  SMOLVM_BINARY(CreateFCmpOEQ)
  SMOLVM_BINARY(CreateFCmpONE)
  SMOLVM_BINARY(CreateFCmpOLT)
  SMOLVM_BINARY(CreateFCmpOGT)
  SMOLVM_BINARY(CreateFCmpOGE)
  SMOLVM_BINARY(CreateFCmpULE)
  SMOLVM_BINARY(CreateFCmpUNO)
#undef SMOLVM_BINARY_OR_CONSTANT
#undef SMOLVM_BINARY
  V CreateICmp(llvm::CmpInst::Predicate predicate, V x, V y) {
    Match({&x, &y});
    return Base::CreateICmp(predicate, x, y);
  }
  V CreateFCmp(llvm::CmpInst::Predicate predicate, V x, V y) {
    Match({&x, &y});
    return Base::CreateFCmp(predicate, x, y);
  }
  // A scalar condition may choose between vectors.
  V CreateSelect(V condition, V x, V y) {
    Match({&x, &y});
    if (IsLanes(condition)) Match({&condition, &x, &y});
    return Base::CreateSelect(condition, x, y);
  }

  // Conversions name the element's type.
#define SMOLVM_CAST(Name) \
  V Name(V value, llvm::Type* to) { return Base::Name(value, ShapedAs(value, to)); }
  SMOLVM_CAST(CreateTrunc)
  SMOLVM_CAST(CreateZExt)
  SMOLVM_CAST(CreateSExt)
  SMOLVM_CAST(CreateZExtOrTrunc)
  SMOLVM_CAST(CreateSExtOrTrunc)
  SMOLVM_CAST(CreateBitCast)
  SMOLVM_CAST(CreateFPTrunc)
  SMOLVM_CAST(CreateFPExt)
  SMOLVM_CAST(CreateSIToFP)
  SMOLVM_CAST(CreateUIToFP)
  SMOLVM_CAST(CreateFPToSI)
#undef SMOLVM_CAST

 private:
  // Everything that touches memory, makes a pointer or calls: by raw() alone.
  using Base::CreateAlignedLoad;
  using Base::CreateAlignedStore;
  using Base::CreateAtomicCmpXchg;
  using Base::CreateAtomicRMW;
  using Base::CreateCall;
  using Base::CreateConstInBoundsGEP1_64;
  using Base::CreateGEP;
  using Base::CreateInBoundsGEP;
  using Base::CreateIndirectBr;
  using Base::CreateIntToPtr;
  using Base::CreateInvoke;
  using Base::CreateLoad;
  using Base::CreateMaskedGather;
  using Base::CreateMaskedLoad;
  using Base::CreateMaskedScatter;
  using Base::CreateMaskedStore;
  using Base::CreateMemCpy;
  using Base::CreateMemMove;
  using Base::CreateMemSet;
  using Base::CreatePtrToInt;
  using Base::CreateStore;
};

}  // namespace smolvm::emulation::codegen
