#include "host-daemon/dispatch/handle_table.h"

#include <mutex>

namespace smolvm::dispatch {
namespace {

constexpr uint32_t kGenerationMask = 0xFFFFFF;

bool IsBuiltInStream(uint64_t id) {
  return id == reinterpret_cast<uint64_t>(CU_STREAM_LEGACY) ||
         id == reinterpret_cast<uint64_t>(CU_STREAM_PER_THREAD);
}

}  // namespace

uint64_t HandleTable::MakeId(const Slot& slot, uint32_t index) {
  return static_cast<uint64_t>(slot.kind) << 56 |
         static_cast<uint64_t>(slot.generation & kGenerationMask) << 32 | index;
}

const HandleTable::Slot* HandleTable::SlotOf(uint64_t id) const {
  const auto index = static_cast<uint32_t>(id);
  if (index >= slots_.size()) return nullptr;
  const Slot& slot = slots_[index];
  return slot.handle && MakeId(slot, index) == id ? &slot : nullptr;
}

bool HandleTable::FindAny(uint64_t id, Kind kind, void** handle) const {
  *handle = nullptr;
  if (id == 0) return true;
  if (kind == Kind::kStream && IsBuiltInStream(id)) {
    *handle = reinterpret_cast<void*>(id);
    return true;
  }
  const std::shared_lock lock(mutex_);
  const Slot* slot = SlotOf(id);
  if (!slot) return false;
  // CUDA accepts a CUkernel cast to CUfunction wherever a function is wanted.
  if (slot->kind != kind && !(kind == Kind::kFunction && slot->kind == Kind::kKernel)) return false;
  *handle = slot->handle;
  return true;
}

uint64_t HandleTable::MintLocked(void* handle, Kind kind, CUcontext owner) {
  uint32_t index;
  if (free_.empty()) {
    index = static_cast<uint32_t>(slots_.size());
    slots_.emplace_back();
  } else {
    index = free_.back();
    free_.pop_back();
  }
  Slot& slot = slots_[index];
  slot.handle = handle;
  slot.kind = kind;
  slot.owner = owner;
  index_[{handle, kind}] = index;
  return MakeId(slot, index);
}

uint64_t HandleTable::MintAny(void* handle, Kind kind, CUcontext owner) {
  const std::unique_lock lock(mutex_);
  // The driver has reused the address of something that has ended without our being told.
  if (const auto old = index_.find({handle, kind}); old != index_.end()) Release(old->second);
  return MintLocked(handle, kind, owner);
}

uint64_t HandleTable::IdOfAny(void* handle, Kind kind, CUcontext owner) {
  if (!handle) return 0;
  const auto raw = reinterpret_cast<uint64_t>(handle);
  if (kind == Kind::kStream && IsBuiltInStream(raw)) return raw;
  const std::unique_lock lock(mutex_);
  const auto found = index_.find({handle, kind});
  if (found != index_.end()) return MakeId(slots_[found->second], found->second);
  if (slots_.size() - free_.size() >= kMaxHandles) return 0;
  return MintLocked(handle, kind, owner);
}

void HandleTable::Release(uint32_t index) {
  Slot& slot = slots_[index];
  index_.erase({slot.handle, slot.kind});
  slot.handle = nullptr;
  ++slot.generation;
  free_.push_back(index);
}

void HandleTable::Remove(uint64_t id) {
  const std::unique_lock lock(mutex_);
  if (SlotOf(id)) Release(static_cast<uint32_t>(id));
}

void HandleTable::RemoveOwnedBy(CUcontext owner) {
  const std::unique_lock lock(mutex_);
  for (uint32_t index = 0; index < slots_.size(); ++index) {
    if (slots_[index].handle && slots_[index].owner == owner) Release(index);
  }
}

bool HandleTable::HasRoom() const {
  const std::shared_lock lock(mutex_);
  return slots_.size() - free_.size() < kMaxHandles;
}

std::vector<CUstream> HandleTable::Streams() const {
  const std::shared_lock lock(mutex_);
  std::vector<CUstream> streams;
  for (const Slot& slot : slots_) {
    if (slot.handle && slot.kind == Kind::kStream)
      streams.push_back(static_cast<CUstream>(slot.handle));
  }
  return streams;
}

}  // namespace smolvm::dispatch
