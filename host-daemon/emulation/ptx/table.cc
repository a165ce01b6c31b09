#include "host-daemon/emulation/ptx/table.h"

namespace smolvm::emulation::ptx {
namespace {

std::string Row(Opcode opcode, bool translated) {
  const OpcodeInfo& info = InfoOf(opcode);
  std::string operands = std::to_string(info.least_operands);
  if (info.most_operands != info.least_operands) {
    operands += " to " + std::to_string(info.most_operands);
  }
  if (opcode == Opcode::kCall) operands = "a call's";
  std::string row = "| `";
  row += info.name;
  row += "` | " + operands + " | ";
  row += (info.modifiers & modifier::kRaw) != 0 ? "read, not checked" : "checked";
  row += translated ? " | translated |\n" : " | refused |\n";
  return row;
}

}  // namespace

std::string OpcodePage(const std::function<bool(Opcode)>& is_translated) {
  size_t translated = 0;
  std::string rows;
  for (size_t i = 0; i < kOpcodeCount; ++i) {
    const auto opcode = static_cast<Opcode>(i);
    const bool is = is_translated(opcode);
    translated += is ? 1 : 0;
    rows += Row(opcode, is);
  }
  std::string page =
      "# PTX instructions\n\n"
      "<!-- Generated: `smolvm_ptx_table > docs/ptx.md`. Do not edit. -->\n\n"
      "The CPU emulation device reads PTX up to ISA version 9.0. Every instruction of the ISA is "
      "parsed. "
      "One that is *translated*\nruns, in at least one of its forms; a kernel that holds one that "
      "is "
      "*refused*, or a form that is not translated, fails\nwith `CUDA_ERROR_NOT_SUPPORTED`, and "
      "the log names the instruction and its line. The other kernels of the module run.\n\n";
  page += std::to_string(translated) + " of " + std::to_string(kOpcodeCount) +
          " instructions are translated.\n\n";
  page += "| instruction | operands | modifiers | kernels |\n|---|---|---|---|\n";
  return page + rows;
}

}  // namespace smolvm::emulation::ptx
