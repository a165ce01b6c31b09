// Compiled objects by content: in this process's memory, and on disk when
// SMOLVM_CUDA_EMULATION_CACHE names a directory.
//
// The directory is one user's; it is never shared between guests that do not trust each other,
// because an object is code that will run.
#pragma once

#include <memory>
#include <string>

#include "host-daemon/emulation/codegen/compiler.h"

namespace smolvm::emulation {

// Lifetime: one per process, never destroyed. Threads: any.
class CodeCache {
 public:
  static CodeCache& Get();

  // Loaded code that another program of this process still uses, or null.
  std::shared_ptr<codegen::LoadedCode> Find(const std::string& key);
  void Keep(const std::string& key, const std::shared_ptr<codegen::LoadedCode>& code);

  // Whether the code need not be compiled: it is in use, or seems to be on disk.
  bool Holds(const std::string& key);

  // An object's bytes from disk; false when there is none, or its check sum is wrong.
  bool Read(const std::string& key, std::string* object);
  void Write(const std::string& key, const std::string& object);

 private:
  CodeCache();
  struct State;
  State* const state_;
};

}  // namespace smolvm::emulation
