// Objects into memory: LLVM's run-time linker over pages of the code region.
#include <llvm/ExecutionEngine/JITSymbol.h>
#include <llvm/ExecutionEngine/RTDyldMemoryManager.h>
#include <llvm/ExecutionEngine/RuntimeDyld.h>
#include <llvm/Object/ObjectFile.h>
#include <llvm/Support/MemoryBuffer.h>
#include <sys/mman.h>

#include <cmath>
#include <cstring>
#include <map>

#include "host-daemon/emulation/codegen/compiler.h"
#include "host-daemon/emulation/codegen/llvm_lease.h"
#include "host-daemon/emulation/runtime/code_region.h"

extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier)
// libgcc's: what LLVM calls for 128-bit division and for halves on CPUs without F16C.
__int128 __divti3(__int128, __int128);
__int128 __modti3(__int128, __int128);
unsigned __int128 __udivti3(unsigned __int128, unsigned __int128);
unsigned __int128 __umodti3(unsigned __int128, unsigned __int128);
// Only their addresses are wanted: their types are not everywhere C++'s.
void __extendhfsf2();
void __truncsfhf2();
void __truncdfhf2();
// NOLINTEND(bugprone-reserved-identifier)
}

namespace smolvm::emulation::codegen {
namespace {

constexpr size_t kPage = 4096;
size_t RoundToPages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// Pages behind the code that are filled with traps. The processor looks up translations of
// instructions up to two pages ahead of the running ones; a page that is not there is looked up
// again in each round of a loop, since a failed walk is cached nowhere. Measured on an AMD EPYC
// under a hypervisor that shadows page tables: 170 ns an iteration, instead of 1.5.
constexpr size_t kTailBytes = 4 * kPage;
constexpr int kTrap = 0xcc;

// Everything that generated code may call by name; nothing else of this process can be linked.
uint64_t AddressOf(llvm::StringRef name) {
  static const std::map<std::string, void*> known = {
      {"memcpy", reinterpret_cast<void*>(&memcpy)},
      {"memmove", reinterpret_cast<void*>(&memmove)},
      {"memset", reinterpret_cast<void*>(&memset)},
      {"fma", reinterpret_cast<void*>(static_cast<double (*)(double, double, double)>(&fma))},
      {"fmaf", reinterpret_cast<void*>(&fmaf)},
      {"trunc", reinterpret_cast<void*>(static_cast<double (*)(double)>(&trunc))},
      {"truncf", reinterpret_cast<void*>(&truncf)},
      {"floor", reinterpret_cast<void*>(static_cast<double (*)(double)>(&floor))},
      {"floorf", reinterpret_cast<void*>(&floorf)},
      {"ceil", reinterpret_cast<void*>(static_cast<double (*)(double)>(&ceil))},
      {"ceilf", reinterpret_cast<void*>(&ceilf)},
      {"roundeven", reinterpret_cast<void*>(static_cast<double (*)(double)>(&roundeven))},
      {"roundevenf", reinterpret_cast<void*>(&roundevenf)},
      {"__divti3", reinterpret_cast<void*>(&__divti3)},
      {"__modti3", reinterpret_cast<void*>(&__modti3)},
      {"__udivti3", reinterpret_cast<void*>(&__udivti3)},
      {"__umodti3", reinterpret_cast<void*>(&__umodti3)},
      {"__extendhfsf2", reinterpret_cast<void*>(&__extendhfsf2)},
      {"__truncsfhf2", reinterpret_cast<void*>(&__truncsfhf2)},
      {"__truncdfhf2", reinterpret_cast<void*>(&__truncdfhf2)},
  };
  const auto found = known.find(name.str());
  return found == known.end() ? 0 : reinterpret_cast<uint64_t>(found->second);
}

}  // namespace

// Sections go to one piece of the code region: code first, then traps, then read-only data. Nothing
// stays writable.
struct LoadedCode::Pages : public llvm::RTDyldMemoryManager {
  ~Pages() override {
    if (base != nullptr) CodeRegion::Get().Put(base, size);
  }

  bool needsToReserveAllocationSpace() override { return true; }
  void reserveAllocationSpace(uintptr_t code, llvm::Align, uintptr_t read_only, llvm::Align,
                              uintptr_t writable, llvm::Align) override {
    code_size = RoundToPages(code + kPage) + kTailBytes;
    size = code_size + RoundToPages(read_only + writable + kPage);
    base = static_cast<uint8_t*>(CodeRegion::Get().Take(size));
    if (base != nullptr) memset(base, kTrap, code_size);
    next_code = base;
    next_data = base + code_size;
  }
  uint8_t* Allocate(uint8_t** next, const uint8_t* end, uintptr_t bytes, unsigned alignment) {
    if (base == nullptr) return nullptr;
    const uintptr_t unit = alignment == 0 ? 16 : alignment;
    auto at = (reinterpret_cast<uintptr_t>(*next) + unit - 1) / unit * unit;
    if (at + bytes > reinterpret_cast<uintptr_t>(end)) return nullptr;
    *next = reinterpret_cast<uint8_t*>(at + bytes);
    return reinterpret_cast<uint8_t*>(at);
  }
  uint8_t* allocateCodeSection(uintptr_t bytes, unsigned alignment, unsigned,
                               llvm::StringRef) override {
    return Allocate(&next_code, base + code_size - kTailBytes, bytes, alignment);
  }
  uint8_t* allocateDataSection(uintptr_t bytes, unsigned alignment, unsigned, llvm::StringRef,
                               bool) override {
    return Allocate(&next_data, base + size, bytes, alignment);
  }
  bool finalizeMemory(std::string*) override {
    return mprotect(base, code_size, PROT_READ | PROT_EXEC) != 0 ||
           mprotect(base + code_size, size - code_size, PROT_READ) != 0;
  }
  void registerEHFrames(uint8_t*, uint64_t, size_t) override {}
  void deregisterEHFrames() override {}
  llvm::JITSymbol findSymbol(const std::string& name) override {
    return {AddressOf(name), llvm::JITSymbolFlags::Exported};
  }

  uint8_t* base = nullptr;
  size_t size = 0;
  size_t code_size = 0;
  uint8_t* next_code = nullptr;
  uint8_t* next_data = nullptr;
};

LoadedCode* LoadedCode::Load(const std::string& object, std::string* error) {
  const auto fail = [&](llvm::StringRef why) -> LoadedCode* {
    *error = "cannot load compiled code: " + why.str();
    return nullptr;
  };
  const LlvmLease lease;
  if (!lease) return fail(kProcessEnds);
  auto file = llvm::object::ObjectFile::createObjectFile(llvm::MemoryBufferRef(object, "kernel"));
  if (!file) return fail(llvm::toString(file.takeError()));
  std::unique_ptr<LoadedCode> code(new LoadedCode);
  code->pages_ = new Pages;
  llvm::RuntimeDyld linker(*code->pages_, *code->pages_);
  linker.loadObject(**file);
  if (linker.hasError()) return fail(linker.getErrorString());
  if (code->pages_->base == nullptr) return fail("no memory for code");
  linker.resolveRelocations();
  if (linker.hasError()) return fail(linker.getErrorString());
  const uint64_t address = linker.getSymbol(kKernelSymbol).getAddress();
  if (address == 0) return fail("the object has no kernel");
  if (code->pages_->finalizeMemory(nullptr)) return fail("cannot make memory executable");
  code->function_ = reinterpret_cast<KernelFunction>(address);
  return code.release();
}

LoadedCode::~LoadedCode() { delete pages_; }

}  // namespace smolvm::emulation::codegen
