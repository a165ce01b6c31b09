#include "tests/unit/emulation_runtime/instruction_kernel.h"

#include <sstream>

namespace smolvm::emulation {

std::vector<std::string> Split(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

unsigned BitsOfRegister(const std::string& type) {
  return type == "pred" ? 1 : static_cast<unsigned>(std::stoi(type.substr(1)));
}

namespace {

// The text of one row: loads its sources from 8-byte slots, runs it, stores the result in a slot.
std::string RowText(const InstructionRow& row, size_t index) {
  const std::vector<std::string> operands = Split(row.operands);
  const std::string tag = std::to_string(index) + "_";
  std::string declarations, loads, arguments;
  const auto name = [&](size_t k) { return "%v" + tag + std::to_string(k); };
  for (size_t k = 0; k < operands.size(); ++k) {
    if (k > 0) arguments += ", ";
    if (operands[k][0] == '#') {
      arguments += operands[k].substr(1);
      continue;
    }
    arguments += name(k);
    declarations += "  .reg ." + operands[k] + " " + name(k) + ";\n";
    if (k == 0) continue;
    const size_t offset = 8 * ((k - 1) + index * kMaxSources);
    if (operands[k] == "pred") {
      declarations += "  .reg .b32 %p" + tag + std::to_string(k) + ";\n";
      loads += "  ld.global.b32 %p" + tag + std::to_string(k) + ", [%in+" + std::to_string(offset) +
               "];\n  setp.ne.u32 " + name(k) + ", %p" + tag + std::to_string(k) + ", 0;\n";
    } else {
      loads += "  ld.global." + operands[k] + " " + name(k) + ", [%in+" + std::to_string(offset) +
               "];\n";
    }
  }
  std::string store;
  const std::string out = std::to_string(8 * index);
  if (operands[0] == "pred") {
    declarations += "  .reg .b32 %q" + tag + ";\n";
    store = "  selp.u32 %q" + tag + ", 1, 0, " + name(0) + ";\n  st.global.b32 [%out+" + out +
            "], %q" + tag + ";\n";
  } else {
    store = "  st.global." + operands[0] + " [%out+" + out + "], " + name(0) + ";\n";
  }
  return declarations + loads + "  " + row.mnemonic + " " + arguments + ";\n" + store;
}

}  // namespace

std::string KernelText(std::span<const InstructionRow> rows) {
  std::string text = R"(.version 8.7
.target sm_90
.address_size 64
.visible .entry rows(.param .u64 in, .param .u64 out) {
  .reg .b64 %in, %out;
  .reg .b32 %lane0;
  ld.param.u64 %in, [in];
  ld.param.u64 %out, [out];
  mov.u32 %lane0, %tid.x;
)";
  text +=
      "  mad.wide.u32 %in, %lane0, " + std::to_string(8 * kMaxSources * rows.size()) + ", %in;\n";
  text += "  mad.wide.u32 %out, %lane0, " + std::to_string(8 * rows.size()) + ", %out;\n";
  for (size_t k = 0; k < rows.size(); ++k) text += RowText(rows[k], k);
  return text + "  ret;\n}\n";
}

}  // namespace smolvm::emulation
