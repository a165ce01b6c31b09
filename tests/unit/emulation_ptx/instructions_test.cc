#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>

#include "tests/unit/emulation_ptx/source.h"

namespace smolvm::emulation::ptx {
namespace {

std::string List() {
  std::ifstream file(SMOLVM_PTX_INSTRUCTIONS);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Instructions, TheWholeListParses) {
  const Module module = ParseOrFail(List());
  ASSERT_EQ(module.functions.size(), 1u);
  EXPECT_GT(module.functions[0].body.size(), 90u);
}

TEST(Instructions, OperandsAreCounted) {
  const Module module = ParseOrFail(List());
  for (const Instruction& instruction : module.functions[0].body) {
    const OpcodeInfo& info = InfoOf(instruction.opcode);
    EXPECT_GE(instruction.operands.size(), info.least_operands) << instruction.text;
    EXPECT_LE(instruction.operands.size(), info.most_operands) << instruction.text;
  }
}

TEST(Opcodes, EachNameIsFoundWhole) {
  std::set<std::string_view> names;
  for (size_t n = 0; n < kOpcodeCount; ++n) {
    const auto opcode = static_cast<Opcode>(n);
    EXPECT_TRUE(names.insert(NameOf(opcode)).second) << NameOf(opcode);
    Opcode found;
    size_t length;
    ASSERT_TRUE(FindOpcode(NameOf(opcode), &found, &length)) << NameOf(opcode);
    EXPECT_EQ(found, opcode) << NameOf(opcode);
    EXPECT_EQ(length, NameOf(opcode).size());
    EXPECT_LE(InfoOf(opcode).least_operands, InfoOf(opcode).most_operands);
  }
}

}  // namespace
}  // namespace smolvm::emulation::ptx
