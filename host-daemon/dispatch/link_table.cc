#include "host-daemon/dispatch/link_table.h"

#include <utility>

namespace smolvm::dispatch {

bool LinkTable::HasRoom() const {
  const std::lock_guard lock(mutex_);
  return links_.size() < kMaxLinks;
}

void LinkTable::Add(uint64_t id, std::shared_ptr<LinkInProgress> link) {
  const std::lock_guard lock(mutex_);
  links_[id] = std::move(link);
}

std::shared_ptr<LinkInProgress> LinkTable::Find(uint64_t id) const {
  const std::lock_guard lock(mutex_);
  const auto found = links_.find(id);
  return found == links_.end() ? nullptr : found->second;
}

void LinkTable::Remove(uint64_t id) {
  const std::lock_guard lock(mutex_);
  const auto found = links_.find(id);
  if (found == links_.end()) return;
  input_bytes_ -= found->second->input_bytes;
  links_.erase(found);
}

bool LinkTable::Count(LinkInProgress& link, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (link.inputs >= kMaxInputs || bytes > kMaxInputBytes - input_bytes_) return false;
  ++link.inputs;
  link.input_bytes += bytes;
  input_bytes_ += bytes;
  return true;
}

}  // namespace smolvm::dispatch
