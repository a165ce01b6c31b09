// The handles that a program holds: opaque pointers, each checked against the set of live ones
// before it is used.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace smolvm::emulation {

// Maps handles to objects. A handle is the object's address, but is never dereferenced: a stale or
// made-up one is simply not found. `Handle` is CUDA's opaque pointer type.
//
// Threads: every function may be called from any thread.
template <typename Handle, typename T>
class HandleTable {
 public:
  Handle Add(std::shared_ptr<T> object) {
    const Handle handle = reinterpret_cast<Handle>(object.get());
    Shard& shard = ShardOf(handle);
    std::lock_guard lock(shard.mutex);
    shard.objects[handle] = std::move(object);
    return handle;
  }

  // Null when there is no such handle.
  std::shared_ptr<T> Find(Handle handle) {
    Shard& shard = ShardOf(handle);
    std::lock_guard lock(shard.mutex);
    const auto found = shard.objects.find(handle);
    return found == shard.objects.end() ? nullptr : found->second;
  }

  std::shared_ptr<T> Remove(Handle handle) {
    Shard& shard = ShardOf(handle);
    std::lock_guard lock(shard.mutex);
    const auto found = shard.objects.find(handle);
    if (found == shard.objects.end()) return nullptr;
    std::shared_ptr<T> object = std::move(found->second);
    shard.objects.erase(found);
    return object;
  }

 private:
  struct Shard {
    std::mutex mutex;
    std::unordered_map<Handle, std::shared_ptr<T>> objects;
  };

  Shard& ShardOf(Handle handle) {
    return shards_[(reinterpret_cast<uintptr_t>(handle) >> 6) % shards_.size()];
  }

  std::array<Shard, 8> shards_;
};

}  // namespace smolvm::emulation
