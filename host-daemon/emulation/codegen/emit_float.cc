// Floating-point arithmetic, exact to the ISA: rounding, subnormals, saturation, NaN. No
// contraction, no fast-math.
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>

#include "host-daemon/emulation/codegen/emitter.h"

namespace smolvm::emulation::codegen {

using llvm::ConstantFP;
using ptx::Opcode;
using ptx::Rounding;

bool FunctionEmitter::IsHalf(Type type) {
  return type == Type::kF16 || type == Type::kBf16 || type == Type::kF16x2 || type == Type::kBf16x2;
}
bool FunctionEmitter::IsBf16(Type type) { return type == Type::kBf16 || type == Type::kBf16x2; }

RoundMode FunctionEmitter::ModeOf(Rounding rounding) {
  switch (rounding) {
    case Rounding::kRz:
    case Rounding::kRzi:
      return RoundMode::kZero;
    case Rounding::kRm:
    case Rounding::kRmi:
      return RoundMode::kDown;
    case Rounding::kRp:
    case Rounding::kRpi:
      return RoundMode::kUp;
    default:
      return RoundMode::kNearest;
  }
}

V FunctionEmitter::CallHelper(Helper helper, std::initializer_list<V> arguments) {
  const llvm::ArrayRef<V> all(arguments.begin(), arguments.size());
  if (llvm::any_of(all, &LaneBuilder::IsLanes)) return CallHelperForLanes(helper, all);
  return CallHelperOnce(helper, all);
}

V FunctionEmitter::CallHelperOnce(Helper helper, llvm::ArrayRef<V> arguments) {
  // A coroutine's frame is one cache line at best: what the block's context has, it need not hold.
  V table = coroutine == nullptr
                ? helpers
                : LoadContext(b, block_ctx, offsetof(BlockContext, helpers), m.ptr(), false);
  V function = LoadContext(b, table, static_cast<size_t>(helper) * sizeof(void*), m.ptr(), true);
  llvm::CallInst* call = b.raw().CreateCall(m.HelperType(helper), function, arguments);
  call->setDoesNotThrow();
  return call;
}

V FunctionEmitter::Intrinsic(llvm::Intrinsic::ID id, std::initializer_list<V> arguments) {
  if (arguments.size() == 0) return b.CreateIntrinsic(id, {}, {});
  llvm::SmallVector<V, 3> shaped(arguments);
  const auto lanes = llvm::find_if(shaped, &LaneBuilder::IsLanes);
  if (lanes != shaped.end()) {
    // What is a flag of the intrinsic stays one.
    V like = *lanes;
    for (V& value : shaped) {
      if (!value->getType()->isIntegerTy(1)) value = b.Widened(value, like);
    }
  }
  return b.CreateIntrinsic(id, {shaped[0]->getType()}, shaped);
}

V FunctionEmitter::IsSubnormal(V value) {
  const bool is_double = value->getType()->getScalarType()->isDoubleTy();
  V least = ConstantFP::get(value->getType(), is_double ? 0x1p-1022 : 0x1p-126);
  V magnitude = Intrinsic(llvm::Intrinsic::fabs, {value});
  return b.CreateFCmpOLT(magnitude, least);  // zeroes too: flushing them changes nothing
}

V FunctionEmitter::Flush(V value) {
  V zero = Intrinsic(llvm::Intrinsic::copysign, {ConstantFP::get(value->getType(), 0.0), value});
  return b.CreateSelect(IsSubnormal(value), zero, value);
}

V FunctionEmitter::Saturate(V value) {
  llvm::Type* type = value->getType();
  V zero = ConstantFP::get(type, 0.0);
  V one = ConstantFP::get(type, 1.0);
  V low = b.CreateSelect(b.CreateFCmpOGT(value, zero), value, zero);  // NaN and -0 too become +0
  return b.CreateSelect(b.CreateFCmpOLT(low, one), low, one);
}

V FunctionEmitter::Finish(const Instruction& i, V value) {
  if (i.modifiers.ftz) value = Flush(value);
  if (i.modifiers.sat) value = Saturate(value);
  return value;
}

V FunctionEmitter::FloatArithmetic(const Instruction& i, FloatOp op, V x, V y, V z) {
  const RoundMode mode = ModeOf(i.modifiers.rounding);
  if (mode == RoundMode::kNearest) {
    switch (op) {
      case FloatOp::kAdd:
        return b.CreateFAdd(x, y);
      case FloatOp::kSub:
        return b.CreateFSub(x, y);
      case FloatOp::kMul:
        return b.CreateFMul(x, y);
      case FloatOp::kDiv:
        return b.CreateFDiv(x, y);
      case FloatOp::kFma:
        return Intrinsic(llvm::Intrinsic::fma, {x, y, z});
      case FloatOp::kSqrt:
        return Intrinsic(llvm::Intrinsic::sqrt, {x});
    }
  }
  if (x->getType()->getScalarType()->isFloatTy() && op != FloatOp::kDiv && op != FloatOp::kSqrt) {
    if (m.has_avx512()) return DirectedF32Native(op, mode, x, y, z);
    return DirectedF32(op, mode, x, y, z);
  }
  const Helper helper =
      x->getType()->getScalarType()->isDoubleTy() ? Helper::kRoundedF64 : Helper::kRoundedF32;
  V zero = ConstantFP::get(x->getType(), 0.0);
  return CallHelper(helper, {I32(static_cast<uint32_t>(op)), I32(static_cast<uint32_t>(mode)), x,
                             y != nullptr ? y : zero, z != nullptr ? z : zero});
}

// Directed rounding of f32 without touching the processor's mode (expf's range reduction has one):
// the sum or product in f64 with its exact error, rounded to nearest, then moved by one unit when
// it lies on the wrong side.
V FunctionEmitter::DirectedF32(FloatOp op, RoundMode mode, V x, V y, V z) {
  llvm::Type* wide_type = b.getDoubleTy();
  const auto wide = [&](V value) { return b.CreateFPExt(value, wide_type); };
  V zero = ConstantFP::get(wide_type, 0.0);
  V sum, error = zero, exact_signs = nullptr;
  if (op == FloatOp::kMul) {
    sum = b.CreateFMul(wide(x), wide(y));  // 48 bits: exact
  } else {
    V p = op == FloatOp::kFma ? b.CreateFMul(wide(x), wide(y)) : wide(x);
    V q = op == FloatOp::kFma ? wide(z) : wide(y);
    if (op == FloatOp::kSub) q = b.CreateFNeg(q);
    sum = b.CreateFAdd(p, q);
    V q_part = b.CreateFSub(sum, p);  // TwoSum (Knuth): sum + error is exact
    error = b.CreateFAdd(b.CreateFSub(p, b.CreateFSub(sum, q_part)), b.CreateFSub(q, q_part));
    exact_signs = b.CreateOr(ToBits(p), ToBits(q));
  }
  V nearest = b.CreateFPTrunc(sum, b.getFloatTy());
  V back = wide(nearest);
  V same = b.CreateFCmpOEQ(back, sum);
  V above = b.CreateOr(b.CreateFCmpOGT(back, sum), b.CreateAnd(same, b.CreateFCmpOLT(error, zero)));
  V below = b.CreateOr(b.CreateFCmpOLT(back, sum), b.CreateAnd(same, b.CreateFCmpOGT(error, zero)));
  V bits = ToBits(nearest);
  V negative = b.CreateICmpSLT(bits, I32(0));
  V outward = b.CreateAdd(bits, I32(1)), inward = b.CreateSub(bits, I32(1));
  V moved;
  switch (mode) {
    case RoundMode::kDown:
      moved = b.CreateSelect(above, b.CreateSelect(negative, outward, inward), bits);
      break;
    case RoundMode::kUp:
      moved = b.CreateSelect(below, b.CreateSelect(negative, inward, outward), bits);
      break;
    default:
      moved = b.CreateSelect(b.CreateSelect(negative, below, above), inward, bits);
      break;
  }
  if (mode == RoundMode::kDown && exact_signs != nullptr) {
    // An exact zero is -0 when rounding down, unless both terms are +0.
    V is_zero = b.CreateFCmpOEQ(sum, zero);
    V signed_zero = b.CreateTrunc(b.CreateLShr(exact_signs, 32), b.getInt32Ty());
    moved = b.CreateSelect(is_zero, b.CreateAnd(signed_zero, I32(0x80000000)), moved);
  }
  return b.CreateBitCast(moved, b.getFloatTy());
}

void FunctionEmitter::EmitFloatBinary(const Instruction& i, FloatOp op) {
  const Type type = i.type();
  if (IsHalf(type)) return EmitHalfArithmetic(i, op);
  if (type == Type::kF32x2) {
    V x = ReadBits(i.operands[1], Type::kB64);
    V y = ReadBits(i.operands[2], Type::kB64);
    V result = I64(0);
    for (unsigned k = 0; k < 2; ++k) {
      const auto part = [&](V bits) {
        return FlushIf(i, b.CreateBitCast(b.CreateTrunc(b.CreateLShr(bits, 32 * k), b.getInt32Ty()),
                                          b.getFloatTy()));
      };
      V value = Canonical(Finish(i, FloatArithmetic(i, op, part(x), part(y), nullptr)));
      result = b.CreateOr(result, b.CreateShl(b.CreateZExt(ToBits(value), b.getInt64Ty()), 32 * k));
    }
    return WriteBits(i.operands[0], result, Type::kB64);
  }
  if (type != Type::kF32 && type != Type::kF64) return Refuse(i);
  if (i.type_count > 1 && i.source_type() != type) {
    // Mixed precision (add.f32.f16): the 16-bit operand is widened first.
    V x = FlushIf(i, FloatOperand(i, i.operands[1], i.source_type()));
    V y = FlushIf(i, Read(i.operands[2], type));
    return Write(i.operands[0], Finish(i, FloatArithmetic(i, op, x, y, nullptr)), type);
  }
  V x = FlushIf(i, Read(i.operands[1], type));
  V y = FlushIf(i, Read(i.operands[2], type));
  Write(i.operands[0], Finish(i, FloatArithmetic(i, op, x, y, nullptr)), type);
}

void FunctionEmitter::EmitFma(const Instruction& i) {
  const Type type = i.type();
  if (IsHalf(type)) return EmitHalfArithmetic(i, FloatOp::kFma);
  if (type == Type::kF32x2) {
    V parts[3] = {ReadBits(i.operands[1], Type::kB64), ReadBits(i.operands[2], Type::kB64),
                  ReadBits(i.operands[3], Type::kB64)};
    V result = I64(0);
    for (unsigned k = 0; k < 2; ++k) {
      const auto part = [&](V bits) {
        return FlushIf(i, b.CreateBitCast(b.CreateTrunc(b.CreateLShr(bits, 32 * k), b.getInt32Ty()),
                                          b.getFloatTy()));
      };
      V value = Canonical(Finish(
          i, FloatArithmetic(i, FloatOp::kFma, part(parts[0]), part(parts[1]), part(parts[2]))));
      result = b.CreateOr(result, b.CreateShl(b.CreateZExt(ToBits(value), b.getInt64Ty()), 32 * k));
    }
    return WriteBits(i.operands[0], result, Type::kB64);
  }
  if ((type != Type::kF32 && type != Type::kF64) || (i.type_count > 1 && i.source_type() != type))
    return Refuse(i);
  V x = FlushIf(i, Read(i.operands[1], type));
  V y = FlushIf(i, Read(i.operands[2], type));
  V z = FlushIf(i, Read(i.operands[3], type));
  Write(i.operands[0], Finish(i, FloatArithmetic(i, FloatOp::kFma, x, y, z)), type);
}

// .approx and .full allow 2 ulp; the exact quotient is as fast here.
void FunctionEmitter::EmitFloatDiv(const Instruction& i) {
  if (i.type() != Type::kF32 && i.type() != Type::kF64) return Refuse(i);
  V x = FlushIf(i, Read(i.operands[1], i.type()));
  V y = FlushIf(i, Read(i.operands[2], i.type()));
  Write(i.operands[0], Finish(i, FloatArithmetic(i, FloatOp::kDiv, x, y, nullptr)), i.type());
}

// The same with AVX-512, as one fused operation: x + y = x·1 + y, x·y = x·y + -0.
V FunctionEmitter::DirectedF32Native(FloatOp op, RoundMode mode, V x, V y, V z) {
  llvm::Type* type = b.getFloatTy();
  if (op == FloatOp::kAdd || op == FloatOp::kSub) {
    z = op == FloatOp::kSub ? b.CreateFNeg(y) : y;
    y = ConstantFP::get(type, 1.0);
  } else if (op == FloatOp::kMul) {
    // The zero that leaves an exact zero's sign alone.
    z = ConstantFP::get(type, -0.0);
    if (mode == RoundMode::kUp || mode == RoundMode::kZero || mode == RoundMode::kDown) {
      V sign = b.CreateBitCast(b.CreateXor(ToBits(x), ToBits(y)), type);
      z = Intrinsic(llvm::Intrinsic::copysign, {z, sign});
    }
  }
  // _MM_FROUND_TO_NEG_INF, _TO_POS_INF, _TO_ZERO; 8 is _MM_FROUND_NO_EXC.
  const unsigned control = 8 | (mode == RoundMode::kDown ? 1 : mode == RoundMode::kUp ? 2 : 3);
  b.Match({&x, &y, &z});
  return b.CreateIntrinsic(LaneBuilder::IsLanes(x) ? llvm::Intrinsic::x86_avx512_vfmadd_ps_512
                                                   : llvm::Intrinsic::x86_avx512_vfmadd_f32,
                           {}, {x, y, z, I32(control)});
}

// x · 2^n for an integral n of magnitude up to 160; in two factors, so that subnormal results come
// out.
V FunctionEmitter::ScaleByPower(V x, V n) {
  llvm::Type* type = x->getType();
  constexpr unsigned kCurrentRounding = 4;
  if (m.has_avx512() && LaneBuilder::IsLanes(x)) {
    return b.CreateIntrinsic(
        llvm::Intrinsic::x86_avx512_mask_scalef_ps_512, {},
        {x, n, llvm::Constant::getNullValue(type), b.getInt16(0xffff), I32(kCurrentRounding)});
  }
  if (m.has_avx512()) {
    auto* vector = llvm::FixedVectorType::get(type, 4);
    const auto widen = [&](V value) {
      return b.CreateInsertElement(llvm::PoisonValue::get(vector), value, uint64_t{0});
    };
    V scaled = b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_mask_scalef_ss, {},
                                 {widen(x), widen(n), llvm::Constant::getNullValue(vector),
                                  b.getInt8(1), I32(kCurrentRounding)});
    return b.CreateExtractElement(scaled, uint64_t{0});
  }
  V exponent = b.CreateFPToSI(n, b.getInt32Ty());
  V half = b.CreateAShr(exponent, 1);
  const auto power = [&](V e) {
    return b.CreateBitCast(b.CreateShl(b.CreateAdd(e, I32(127)), 23), type);
  };
  return b.CreateFMul(b.CreateFMul(x, power(half)), power(b.CreateSub(exponent, half)));
}

// ex2.approx.f32, within 2^-22 of the exact value (PTX ISA 9.7.3.21), inline: a call would spill
// every vector register.
//
// 2^x = 2^n · 2^r with n = round(x), |r| ≤ 1/2; 2^r by its Taylor polynomial of degree 7, whose
// error is below 2^-27, summed in a tree (Estrin): the chain of dependent operations is what counts
// here. Beyond ±160 nothing changes any more. A NaN falls through both comparisons. With AVX-512
// the scaling saturates and hands on a NaN, and only ∞ - ∞ must not reach the polynomial.
V FunctionEmitter::Exp2(V x, bool flush) {
  llvm::Type* type = x->getType();
  const auto number = [&](double value) { return ConstantFP::get(type, value); };
  const auto fused = [&](V p, V q, V r) { return Intrinsic(llvm::Intrinsic::fma, {p, q, r}); };
  const auto at_most = [&](V v, double most) {
    return b.CreateSelect(b.CreateFCmpOGT(v, number(most)), number(most), v);
  };
  V in_range = x;
  if (!m.has_avx512()) {
    V low = at_most(x, 160);
    in_range = b.CreateSelect(b.CreateFCmpOLT(low, number(-160)), number(-160), low);
  }
  V whole = Intrinsic(llvm::Intrinsic::roundeven, {in_range});
  V r = b.CreateFSub(in_range, whole);
  if (m.has_avx512()) r = b.CreateSelect(b.CreateFCmpOLT(r, number(0.5)), r, number(0.5));
  // ln(2)^k / k!
  constexpr double kTerms[] = {
      1.0,
      0.6931471805599453,
      0.24022650695910072,
      0.05550410866482158,
      0.009618129107628477,
      0.0013333558146428443,
      0.0001540353039338161,
      1.525273380405984e-05,
  };
  V pair[4];
  for (size_t k = 0; k < 4; ++k)
    pair[k] = fused(number(kTerms[2 * k + 1]), r, number(kTerms[2 * k]));
  V square = b.CreateFMul(r, r);
  V sum = fused(fused(pair[3], square, pair[2]), b.CreateFMul(square, square),
                fused(pair[1], square, pair[0]));
  V tiny = b.CreateFCmpOLT(x, number(-126));
  if (m.has_avx512() && flush) whole = b.CreateSelect(tiny, number(-1000), whole);
  V result = ScaleByPower(sum, whole);
  if (m.has_avx512()) return result;
  if (flush) result = b.CreateSelect(tiny, number(0), result);
  return b.CreateSelect(IsNaN(x), x, result);
}

void FunctionEmitter::EmitUnary(const Instruction& i) {
  const Type type = i.type();
  const auto apply = [&](V x) -> V {
    llvm::Type* t = x->getType();
    V one = ConstantFP::get(t, 1.0);
    switch (i.opcode) {
      case Opcode::kRcp:
        return FloatArithmetic(i, FloatOp::kDiv, one, x, nullptr);
      case Opcode::kSqrt:
        return FloatArithmetic(i, FloatOp::kSqrt, x, nullptr, nullptr);
      case Opcode::kRsqrt:
        return b.CreateFDiv(one, Intrinsic(llvm::Intrinsic::sqrt, {x}));
      case Opcode::kSin:
        return CallHelper(Helper::kSinF32, {x});
      case Opcode::kCos:
        return CallHelper(Helper::kCosF32, {x});
      case Opcode::kLg2:
        return CallHelper(Helper::kLg2F32, {x});
      case Opcode::kEx2:
        return Exp2(x, i.modifiers.ftz);
      default:
        return CallHelper(Helper::kTanhF32, {x});
    }
  };
  if (IsHalf(type)) {
    return EmitHalf(
        i,
        [&](const std::vector<V>& x, bool is_bf16) {
          return FloatToHalf(apply(HalfToFloat(x[0], is_bf16)), is_bf16);
        },
        1);
  }
  const bool f32_only = i.opcode == Opcode::kSin || i.opcode == Opcode::kCos ||
                        i.opcode == Opcode::kLg2 || i.opcode == Opcode::kEx2 ||
                        i.opcode == Opcode::kTanh;
  if (type != Type::kF32 && (type != Type::kF64 || f32_only)) return Refuse(i);
  // Exp2 flushes by itself: of a subnormal operand the result is 1 either way.
  if (i.opcode == Opcode::kEx2) return Write(i.operands[0], apply(Read(i.operands[1], type)), type);
  V result = apply(FlushIf(i, Read(i.operands[1], type)));
  Write(i.operands[0], Finish(i, result), type);
}

// PTX ISA 9.7.3.11, min and max: of a NaN and a number the number; +0 is greater than -0; .NaN: NaN
// wins.
V FunctionEmitter::MinMax(V x, V y, bool is_max, bool propagate_nan) {
  V both = Intrinsic(is_max ? llvm::Intrinsic::maximum : llvm::Intrinsic::minimum, {x, y});
  // LLVM 19 loses the NaN in vectors that were widened from halves.
  if (propagate_nan)
    return b.CreateSelect(b.CreateFCmpUNO(x, y), ConstantFP::getNaN(both->getType()), both);
  return b.CreateSelect(IsNaN(x), y, b.CreateSelect(IsNaN(y), x, both));
}

void FunctionEmitter::EmitFloatMinMax(const Instruction& i, bool is_max) {
  const Type type = i.type();
  const bool nan = i.modifiers.nan;
  const auto combine = [&](V x, V y) {
    V result = MinMax(x, y, is_max, nan);
    if (i.modifiers.xorsign) {
      // The smaller or larger magnitude, with the product's sign.
      V magnitude = MinMax(Intrinsic(llvm::Intrinsic::fabs, {x}),
                           Intrinsic(llvm::Intrinsic::fabs, {y}), is_max, nan);
      V sign = b.CreateBitCast(b.CreateXor(ToBits(x), ToBits(y)), x->getType());
      V signed_result = Intrinsic(llvm::Intrinsic::copysign, {magnitude, sign});
      result = b.CreateSelect(IsNaN(magnitude), magnitude, signed_result);
    }
    return result;
  };
  if (IsHalf(type)) {
    return EmitHalf(
        i,
        [&](const std::vector<V>& x, bool is_bf16) {
          const auto operand = [&](V bits) {
            V value = HalfToFloat(bits, is_bf16);
            if (!i.modifiers.ftz || is_bf16) return value;
            V tiny = b.CreateFCmpOLT(Intrinsic(llvm::Intrinsic::fabs, {value}),
                                     ConstantFP::get(value->getType(), 0x1p-14));
            V zero = Intrinsic(llvm::Intrinsic::copysign,
                               {ConstantFP::get(value->getType(), 0.0), value});
            return b.CreateSelect(tiny, zero, value);
          };
          return FloatToHalf(combine(operand(x[0]), operand(x[1])), is_bf16);
        },
        2);
  }
  if (type != Type::kF32 && type != Type::kF64) return Refuse(i);
  V result = combine(FlushIf(i, Read(i.operands[1], type)), FlushIf(i, Read(i.operands[2], type)));
  if (i.operands.size() == 4) result = combine(result, FlushIf(i, Read(i.operands[3], type)));
  Write(i.operands[0], result, type);
}

void FunctionEmitter::EmitTestp(const Instruction& i) {
  const Type type = i.type();
  if (type != Type::kF32 && type != Type::kF64) return Refuse(i);
  V x = Read(i.operands[1], type);
  V infinity = ConstantFP::getInfinity(x->getType());
  V magnitude = Intrinsic(llvm::Intrinsic::fabs, {x});
  V is_zero = b.CreateFCmpOEQ(x, ConstantFP::get(x->getType(), 0.0));
  V result;
  switch (i.modifiers.test) {
    case ptx::Test::kFinite:
      result = b.CreateFCmpOLT(magnitude, infinity);
      break;
    case ptx::Test::kInfinite:
      result = b.CreateFCmpOEQ(magnitude, infinity);
      break;
    case ptx::Test::kNumber:
      result = b.CreateNot(IsNaN(x));
      break;
    case ptx::Test::kNotANumber:
      result = IsNaN(x);
      break;
    case ptx::Test::kNormal:
      // Zeroes count as normal numbers (PTX ISA 9.7.3.1).
      result = b.CreateAnd(b.CreateFCmpOLT(magnitude, infinity),
                           b.CreateOr(is_zero, b.CreateNot(IsSubnormal(x))));
      break;
    default:
      result = b.CreateAnd(IsSubnormal(x), b.CreateNot(is_zero));
      break;
  }
  WritePredicate(i.operands[0], result);
}

// copysign d, a, b: the sign of a, the rest of b.
void FunctionEmitter::EmitCopysign(const Instruction& i) {
  const Type type = i.type();
  if (type != Type::kF32 && type != Type::kF64) return Refuse(i);
  V sign = FromBits(ReadBits(i.operands[1], type), type);
  V magnitude = FromBits(ReadBits(i.operands[2], type), type);
  Write(i.operands[0], Intrinsic(llvm::Intrinsic::copysign, {magnitude, sign}), type);
}

// ---- halves ----

V FunctionEmitter::HalfToFloat(V bits, bool is_bf16) {
  if (is_bf16)
    return b.CreateBitCast(b.CreateShl(b.CreateZExt(bits, b.getInt32Ty()), 16), b.getFloatTy());
  return b.CreateFPExt(b.CreateBitCast(bits, b.getHalfTy()), b.getFloatTy());
}

// Rounds to nearest even; NaN becomes 0x7fff, the canonical one of both types.
V FunctionEmitter::FloatToHalf(V value, bool is_bf16) {
  V nan = IsNaN(value);
  V bits;
  if (is_bf16) {
    V word = ToBits(value);
    V odd = b.CreateAnd(b.CreateLShr(word, 16), I32(1));
    V rounded = b.CreateAdd(word, b.CreateAdd(odd, I32(0x7fff)));
    bits = b.CreateTrunc(b.CreateLShr(rounded, 16), b.getInt16Ty());
  } else {
    bits = b.CreateBitCast(b.CreateFPTrunc(value, b.getHalfTy()), b.getInt16Ty());
  }
  return b.CreateSelect(nan, b.getInt16(0x7fff), bits);
}

// Applies a scalar function of 16-bit patterns to one or both lanes.
void FunctionEmitter::EmitHalf(const Instruction& i,
                               const std::function<V(const std::vector<V>&, bool)>& scalar,
                               size_t operands) {
  const Type type = i.type();
  const bool is_bf16 = IsBf16(type);
  std::vector<V> sources;
  for (size_t k = 0; k < operands; ++k) sources.push_back(ReadBits(i.operands[1 + k], type));
  const auto finish = [&](V bits) {
    const bool clamps = i.modifiers.sat || i.modifiers.relu || (i.modifiers.ftz && !is_bf16);
    if (!clamps) return bits;
    V value = HalfToFloat(bits, is_bf16);
    if (i.modifiers.ftz && !is_bf16) {
      V tiny = b.CreateFCmpOLT(Intrinsic(llvm::Intrinsic::fabs, {value}),
                               ConstantFP::get(value->getType(), 0x1p-14));
      V zero =
          Intrinsic(llvm::Intrinsic::copysign, {ConstantFP::get(value->getType(), 0.0), value});
      value = b.CreateSelect(tiny, zero, value);
    }
    if (i.modifiers.sat) value = Saturate(value);
    if (i.modifiers.relu) {  // negative → 0, NaN stays (canonical)
      V zero = ConstantFP::get(value->getType(), 0.0);
      value = b.CreateSelect(b.CreateFCmpULE(value, zero),
                             b.CreateSelect(IsNaN(value), value, zero), value);
    }
    return FloatToHalf(value, is_bf16);
  };
  if (ptx::BitsOf(type) == 16)
    return WriteBits(i.operands[0], finish(scalar(sources, is_bf16)), type);
  V result = I32(0);
  for (unsigned k = 0; k < 2; ++k) {
    std::vector<V> parts;
    parts.reserve(sources.size());
    for (V source : sources)
      parts.push_back(b.CreateTrunc(b.CreateLShr(source, 16 * k), b.getInt16Ty()));
    V value = finish(scalar(parts, is_bf16));
    result = b.CreateOr(result, b.CreateShl(b.CreateZExt(value, b.getInt32Ty()), 16 * k));
  }
  WriteBits(i.operands[0], result, type);
}

// add, sub and mul through f32 round once in effect: 24 bits are at least 2·11 + 2. bf16 shares
// f32's exponent range, so its products may be subnormal there and go through the fused helper, as
// fma does (f32 would round twice).
void FunctionEmitter::EmitHalfArithmetic(const Instruction& i, FloatOp op) {
  if (i.type_count > 1 ||
      (i.modifiers.rounding != Rounding::kNone && i.modifiers.rounding != Rounding::kRn)) {
    return Refuse(i);
  }
  const auto fused = [&](const std::vector<V>& x, V addend, bool is_bf16) {
    const auto word = [&](V bits) { return b.CreateZExt(bits, b.getInt32Ty()); };
    V result = CallHelper(is_bf16 ? Helper::kFmaBf16 : Helper::kFmaF16,
                          {I32(0), word(x[0]), word(x[1]), word(addend)});
    return b.CreateTrunc(result, b.getInt16Ty());
  };
  // .ftz of f16 flushes inputs too.
  const auto flushed = [&](V bits, bool is_bf16) -> V {
    if (!i.modifiers.ftz || is_bf16) return bits;
    V is_tiny = b.CreateICmpEQ(b.CreateAnd(bits, b.getInt16(0x7c00)), b.getInt16(0));
    return b.CreateSelect(is_tiny, b.CreateAnd(bits, b.getInt16(0x8000)), bits);
  };
  EmitHalf(
      i,
      [&](const std::vector<V>& raw, bool is_bf16) -> V {
        std::vector<V> x;
        x.reserve(raw.size());
        for (V bits : raw) x.push_back(flushed(bits, is_bf16));
        if (op == FloatOp::kFma) return fused(x, x[2], is_bf16);
        if (op == FloatOp::kMul && is_bf16) return fused(x, b.getInt16(0x8000), is_bf16);  // + (-0)
        V p = HalfToFloat(x[0], is_bf16);
        V q = HalfToFloat(x[1], is_bf16);
        V result = op == FloatOp::kAdd   ? b.CreateFAdd(p, q)
                   : op == FloatOp::kSub ? b.CreateFSub(p, q)
                                         : b.CreateFMul(p, q);
        return FloatToHalf(result, is_bf16);
      },
      op == FloatOp::kFma ? 3 : 2);
}

}  // namespace smolvm::emulation::codegen
