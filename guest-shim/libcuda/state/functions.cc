#include "guest-shim/libcuda/state/functions.h"

#include <algorithm>
#include <mutex>

namespace smolvm::guest {

const FunctionLayout* Functions::Find(uint64_t id) const {
  const std::shared_lock lock(mutex_);
  const auto found = entries_.find(id);
  return found == entries_.end() ? nullptr : &found->second->layout;
}

const FunctionLayout* Functions::Add(uint64_t id, FunctionLayout layout) {
  for (size_t i = 0; i < layout.sizes.size(); ++i) {
    layout.total = std::max(layout.total, layout.offsets[i] + layout.sizes[i]);
  }
  const std::unique_lock lock(mutex_);
  auto& entry = entries_[id];
  if (!entry) {
    entry = std::make_unique<Entry>();
    entry->layout = std::move(layout);
  }
  return &entry->layout;
}

bool Functions::Proved(uint64_t id, const LaunchShape& shape) const {
  const std::shared_lock lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) return false;
  const auto& shapes = found->second->shapes;
  return std::find(shapes.begin(), shapes.end(), shape) != shapes.end();
}

void Functions::Prove(uint64_t id, const LaunchShape& shape) {
  const std::unique_lock lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  Entry& entry = *found->second;
  entry.shapes[entry.next++ % entry.shapes.size()] = shape;
}

}  // namespace smolvm::guest
