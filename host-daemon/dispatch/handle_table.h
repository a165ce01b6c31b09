// What a guest may name: handles of the driver, each behind a session-scoped id.
//
// An id is kind (8 bits) | generation (24) | index (32). A guest cannot name what it was not given:
// an id of another kind, of a slot since reused, or made up, is not found. 0 is the null handle,
// and 1 and 2 are CUDA's own stream handles (CU_STREAM_LEGACY, CU_STREAM_PER_THREAD); both pass
// through.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

namespace smolvm::dispatch {

enum class Kind : uint8_t {
  kContext = 1,
  kStream,
  kEvent,
  kModule,
  kFunction,
  kLibrary,
  kKernel,
  kMemPool,
  kLink
};

inline Kind KindOf(CUcontext) { return Kind::kContext; }
inline Kind KindOf(CUstream) { return Kind::kStream; }
inline Kind KindOf(CUevent) { return Kind::kEvent; }
inline Kind KindOf(CUmodule) { return Kind::kModule; }
inline Kind KindOf(CUfunction) { return Kind::kFunction; }
inline Kind KindOf(CUlibrary) { return Kind::kLibrary; }
inline Kind KindOf(CUkernel) { return Kind::kKernel; }
inline Kind KindOf(CUmemoryPool) { return Kind::kMemPool; }
inline Kind KindOf(CUlinkState) { return Kind::kLink; }

// Threads: every function may be called from any thread.
class HandleTable {
 public:
  // A bound on what one session can make the worker keep.
  static constexpr size_t kMaxHandles = size_t{1} << 20;

  template <typename T>
  bool Find(uint64_t id, T* handle) const {
    void* found = nullptr;
    if (!FindAny(id, KindOf(T{}), &found)) return false;
    *handle = static_cast<T>(found);
    return true;
  }
  // A new id for a handle that the driver has just made. `owner`: the context that takes it along
  // when it ends.
  template <typename T>
  uint64_t Mint(T handle, CUcontext owner) {
    return MintAny(handle, KindOf(handle), owner);
  }
  // The id that a handle has, or a new one.
  template <typename T>
  uint64_t IdOf(T handle, CUcontext owner) {
    return IdOfAny(handle, KindOf(handle), owner);
  }
  void Remove(uint64_t id);
  void RemoveOwnedBy(CUcontext owner);
  bool HasRoom() const;
  std::vector<CUstream> Streams() const;

 private:
  struct Slot {
    void* handle = nullptr;
    CUcontext owner = nullptr;
    uint32_t generation = 0;
    Kind kind{};
  };
  struct Key {
    void* handle;
    Kind kind;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const {
      return std::hash<void*>()(key.handle) * 31 + static_cast<size_t>(key.kind);
    }
  };

  bool FindAny(uint64_t id, Kind kind, void** handle) const;
  uint64_t MintAny(void* handle, Kind kind, CUcontext owner);
  uint64_t IdOfAny(void* handle, Kind kind, CUcontext owner);
  uint64_t MintLocked(void* handle, Kind kind, CUcontext owner);
  const Slot* SlotOf(uint64_t id) const;
  void Release(uint32_t index);
  static uint64_t MakeId(const Slot& slot, uint32_t index);

  mutable std::shared_mutex mutex_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
  std::unordered_map<Key, uint32_t, KeyHash> index_;
};

}  // namespace smolvm::dispatch
