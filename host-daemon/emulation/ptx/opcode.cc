#include "host-daemon/emulation/ptx/opcode.h"

#include <string>
#include <unordered_map>

namespace smolvm::emulation::ptx {
namespace {

// NOLINTNEXTLINE(google-build-using-namespace): the table's column is written in these names.
using namespace modifier;

constexpr OpcodeInfo kTable[] = {
#define OPCODE(enumerator, name, destinations, least, most, types, modifiers) \
  {name, destinations, least, most, types, modifiers},
#define ALIAS(enumerator, name)
#include "host-daemon/emulation/ptx/opcodes.def"
#undef ALIAS
#undef OPCODE
};
static_assert(std::size(kTable) == kOpcodeCount);
static_assert(kOpcodeCount < 256, "enum Opcode is a byte");

using Names = std::unordered_map<std::string_view, Opcode>;

const Names& AllNames() {
  static const Names* const kNames = new Names{
#define OPCODE(enumerator, name, destinations, least, most, types, modifiers) \
  {name, Opcode::enumerator},
#define ALIAS(enumerator, name) {name, Opcode::enumerator},
#include "host-daemon/emulation/ptx/opcodes.def"
#undef ALIAS
#undef OPCODE
  };
  return *kNames;
}

}  // namespace

const OpcodeInfo& InfoOf(Opcode opcode) { return kTable[static_cast<size_t>(opcode)]; }

bool FindOpcode(std::string_view mnemonic, Opcode* opcode, size_t* length) {
  constexpr size_t kMostParts = 4;  // "cp.async.bulk.wait_group"
  bool found = false;
  size_t end = 0;
  for (size_t parts = 0; parts < kMostParts && end < mnemonic.size(); ++parts) {
    end = mnemonic.find('.', end + 1);
    if (end == std::string_view::npos) end = mnemonic.size();
    const auto entry = AllNames().find(mnemonic.substr(0, end));
    if (entry == AllNames().end()) continue;
    *opcode = entry->second;
    *length = end;
    found = true;
  }
  return found;
}

bool EndsBlock(Opcode opcode) {
  switch (opcode) {
    case Opcode::kBra:
    case Opcode::kBrxIdx:
    case Opcode::kRet:
    case Opcode::kExit:
    case Opcode::kTrap:
      return true;
    default:
      return false;
  }
}

}  // namespace smolvm::emulation::ptx
