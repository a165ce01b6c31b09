// Every instruction of instruction_table.cc, compiled and run, against the reference evaluator of
// tests/support (written from the PTX ISA, sharing nothing with the compiler): bit-exact, over edge
// values and random ones.
#include <fmt/format.h>

#include <cstdint>
#include <random>
#include <sstream>

#include "host-daemon/emulation/ptx/parse.h"
#include "tests/support/ptx_arithmetic.h"
#include "tests/unit/emulation_runtime/instruction_kernel.h"
#include "tests/unit/emulation_runtime/instruction_table.h"
#include "tests/unit/emulation_runtime/program_fixture.h"

namespace smolvm::emulation {
namespace {

constexpr uint32_t kThreads = 640;
// Rows of one kernel: compiling many small kernels would cost more than running them.
constexpr size_t kBatch = 24;

// Values that arithmetic gets wrong, by register type; the rest of a 64-bit slot is noise.
uint64_t EdgeValue(const std::string& type, std::mt19937_64& random) {
  static constexpr uint64_t kIntegers[] = {0,
                                           1,
                                           2,
                                           3,
                                           5,
                                           7,
                                           8,
                                           15,
                                           16,
                                           17,
                                           31,
                                           32,
                                           33,
                                           63,
                                           64,
                                           65,
                                           127,
                                           128,
                                           255,
                                           256,
                                           0x7fff,
                                           0x8000,
                                           0xffff,
                                           0x10000,
                                           0x7fffffff,
                                           0x80000000,
                                           0xffffffff,
                                           0x7fffffffffffffff,
                                           0x8000000000000000,
                                           0xffffffffffffffff,
                                           0xfffffffffffffffe,
                                           0xffffff00,
                                           0x00ffffff,
                                           0x00800000,
                                           0x0102030405060708,
                                           0xfedcba9876543210};
  static constexpr uint32_t kFloats[] = {
      0,          0x80000000, 1,          0x80000001, 0x007fffff, 0x807fffff, 0x00800000,
      0x80800000, 0x3f800000, 0xbf800000, 0x3f7fffff, 0x3f800001, 0x3f000000, 0xbf000000,
      0x3fc00000, 0x40200000, 0xc0200000, 0x4b000001, 0x4f000000, 0xcf000000, 0x4effffff,
      0x4f800000, 0x5f000000, 0xdf000000, 0x5f800000, 0x7f7fffff, 0xff7fffff, 0x7f800000,
      0xff800000, 0x7fc00000, 0xffc00000, 0x7f800001, 0x7fc12345, 0x33800000, 0x38800000,
      0x387fc000, 0x477fe000, 0x477ff000, 0x477fefff, 0x42fe0000, 0x43000000, 0x437f0000,
      0x437f8000, 0xc3000000};
  static constexpr uint16_t kHalves[] = {
      0,      0x8000, 1,      0x8001, 0x03ff, 0x0400, 0x8400, 0x3c00, 0xbc00, 0x3bff, 0x3c01,
      0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0xfe00, 0x7c01, 0x3f80, 0xbf80, 0x7f7f, 0xff7f,
      0x7f80, 0xff80, 0x7fc0, 0x0080, 0x007f, 0x3800, 0x3e00, 0x4200, 0x5800};
  const auto pick = [&](const auto& list) { return list[random() % std::size(list)]; };
  const uint64_t any = random();
  if (type == "f32") {
    if (any % 3 == 0) return pick(kFloats);
    if (any % 3 == 1)
      return (random() & 0x807fffff) | ((110 + random() % 40) << 23);  // comparable exponents
    return random() & 0xffffffff;
  }
  if (type == "f64") {
    if (any % 3 == 0) {
      const auto single = pick(kFloats);
      float value;
      memcpy(&value, &single, 4);
      const double wide = value;
      uint64_t bits;
      memcpy(&bits, &wide, 8);
      return bits;
    }
    if (any % 3 == 1) return (random() & 0x800fffffffffffff) | ((1000 + random() % 60) << 52);
    return random();
  }
  if (type == "pred") return any & 1;
  const uint64_t value = any % 2 ? pick(kIntegers) : random();
  if (type == "b16" && any % 4 < 2) return pick(kHalves);
  if (type == "b32" && any % 8 == 0) return uint64_t{pick(kHalves)} << 16 | pick(kHalves);
  if (type == "b32" && any % 8 == 4) return pick(kFloats);
  return value;
}

class Instructions : public ProgramTest {
 protected:
  void Check(std::span<const InstructionRow> rows) {
    for (size_t at = 0; at < rows.size(); at += kBatch) {
      CheckBatch(rows.subspan(at, std::min(kBatch, rows.size() - at)));
      TearDown();
      allocations_.clear();
    }
  }

  void CheckBatch(std::span<const InstructionRow> rows) {
    const std::string text = KernelText(rows);
    ASSERT_EQ(Load(text), "") << text;
    ptx::Module module;
    ptx::Diagnostic diagnostic;
    ASSERT_TRUE(ptx::Parse(text, &module, &diagnostic)) << diagnostic.message;
    std::mt19937_64 random(20240);
    std::vector<uint64_t> in(kThreads * rows.size() * kMaxSources);
    for (uint32_t t = 0; t < kThreads; ++t) {
      for (size_t k = 0; k < rows.size(); ++k) {
        const std::vector<std::string> operands = Split(rows[k].operands);
        for (size_t s = 1; s < operands.size(); ++s) {
          in[(t * rows.size() + k) * kMaxSources + s - 1] =
              operands[s][0] == '#' ? 0 : EdgeValue(operands[s], random);
        }
      }
    }
    auto* device_in = Upload(in);
    auto* out = Allocate<uint64_t>(kThreads * rows.size());
    memset(out, 0, kThreads * rows.size() * 8);
    ASSERT_EQ(Run("rows", 1, kThreads, Params().Add(device_in).Add(out)), CUDA_SUCCESS);
    size_t k = 0;
    for (const ptx::Instruction& instruction : module.functions[0].body) {
      if (k >= rows.size() || instruction.text != rows[k].mnemonic) continue;
      CheckRow(instruction, rows[k], k, rows.size(), in, out);
      ++k;
    }
    ASSERT_EQ(k, rows.size());
  }

  void CheckRow(const ptx::Instruction& instruction, const InstructionRow& row, size_t k,
                size_t row_count, const std::vector<uint64_t>& in, const uint64_t* out) {
    const std::vector<std::string> operands = Split(row.operands);
    int shown = 0;
    for (uint32_t t = 0; t < kThreads && shown < 3; ++t) {
      std::vector<uint64_t> sources;
      std::string shown_sources;
      for (size_t s = 1; s < operands.size(); ++s) {
        uint64_t value = operands[s][0] == '#' ? std::stoull(operands[s].substr(1))
                                               : ptx_interpreter::Truncate(
                                                     in[(t * row_count + k) * kMaxSources + s - 1],
                                                     BitsOfRegister(operands[s]));
        sources.push_back(value);
        shown_sources += fmt::format(" {:x}", value);
      }
      ptx_interpreter::Carry carry;
      ptx_interpreter::Value expected;
      if (!ptx_interpreter::Evaluate(instruction, sources, &carry, &expected)) {
        ADD_FAILURE() << "the reference does not know " << row.mnemonic;
        return;
      }
      const uint64_t got = out[t * row_count + k];
      const unsigned bits = BitsOfRegister(operands[0]);
      // NaNs of f64 keep a payload on the hardware; the ISA does not say which. All else is exact.
      const bool f64_nan = instruction.type() == ptx::Type::kF64 &&
                           ptx_interpreter::SameValue(ptx::Type::kF64, got, expected.bits);
      // A result narrower than its register is extended by its sign (PTX ISA 9.4.1).
      const unsigned type_bits = operands[0] == "pred" || instruction.opcode == ptx::Opcode::kSet
                                     ? bits
                                     : std::min(bits, ptx::BitsOf(instruction.type()));
      const bool extends = instruction.opcode == ptx::Opcode::kCvt && type_bits < bits &&
                           ptx::IsSigned(instruction.type());
      const uint64_t wanted = ptx_interpreter::Truncate(
          extends ? static_cast<uint64_t>(ptx_interpreter::SignExtend(expected.bits, type_bits))
                  : expected.bits,
          bits);
      if (got != wanted && !f64_nan) {
        ADD_FAILURE() << row.mnemonic
                      << fmt::format(" of{}: got {:x}, expected {:x}", shown_sources, got, wanted);
        ++shown;
      }
    }
  }
};

TEST_F(Instructions, Integer) { Check(IntegerRows()); }
TEST_F(Instructions, Float) { Check(FloatRows()); }
TEST_F(Instructions, Conversion) { Check(ConversionRows()); }

}  // namespace
}  // namespace smolvm::emulation
