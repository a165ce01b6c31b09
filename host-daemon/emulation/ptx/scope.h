// Names within `{ }`.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>

#include "host-daemon/emulation/ptx/ir.h"

namespace smolvm::emulation::ptx {

// What a name in a function stands for.
struct Name {
  enum class Kind : uint8_t {
    kRegister,
    kVectorRegister,  // the `count` registers from `index`: ".reg .v4 .f32 v"
    kSymbol,
    kLabel,
    kBranchTargets,
    kCallTargets,
    kPrototype,
  };
  Kind kind = Kind::kRegister;
  uint32_t index = kNoIndex;
  uint32_t count = 1;
  Symbol symbol;
};

// ".reg .b32 %r<19>". Its registers come into being when they are used: "%r<4000000000>" costs
// nothing.
struct RegisterRange {
  Type type = Type::kNone;
  uint32_t count = 0;
  uint8_t vector = 1;  // elements of each
};

class NameScope {
 public:
  // False when the scope has the name already.
  bool Add(std::string_view name, const Name& what) { return names_.emplace(name, what).second; }
  bool AddRange(std::string_view prefix, RegisterRange range) {
    return ranges_.emplace(prefix, range).second;
  }
  const Name* Find(std::string_view name) const;
  // The range that a register belongs to, and its number there. "%r12" may be 12 of "%r" or 2 of
  // "%r1".
  const RegisterRange* FindRange(std::string_view name, std::string_view* prefix,
                                 uint32_t* number) const;

 private:
  std::unordered_map<std::string_view, Name> names_;
  std::unordered_map<std::string_view, RegisterRange> ranges_;
};

}  // namespace smolvm::emulation::ptx
