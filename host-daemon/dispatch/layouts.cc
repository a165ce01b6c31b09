#include "host-daemon/dispatch/layouts.h"

#include <utility>

#include "protocol/log/log.h"

namespace smolvm::dispatch {

void Layouts::AddImage(uint64_t image, std::span<const std::byte> flat) {
  Image added{image::ReadKernelParams(flat), 0};
  for (const auto& [name, params] : added.kernels) added.kept += 1 + (params ? params->size() : 0);
  const std::lock_guard lock(mutex_);
  if (added.kept > kMaxKept - kept_) {
    log::Warn("event=layouts_full kept={} image={}", kept_, added.kept);
    return;
  }
  kept_ += added.kept;
  images_[image] = std::move(added);
}

void Layouts::RemoveImage(uint64_t image) {
  const std::lock_guard lock(mutex_);
  const auto found = images_.find(image);
  if (found == images_.end()) return;
  kept_ -= found->second.kept;
  images_.erase(found);
}

void Layouts::RemoveImages(const std::function<bool(uint64_t)>& gone) {
  const std::lock_guard lock(mutex_);
  std::erase_if(images_, [&](const auto& image) {
    if (!gone(image.first)) return false;
    kept_ -= image.second.kept;
    return true;
  });
}

std::optional<image::KernelParams> Layouts::Of(uint64_t image, std::string_view name,
                                               uint64_t kernel) {
  const std::lock_guard lock(mutex_);
  const auto found = images_.find(image);
  if (found == images_.end()) return std::nullopt;
  const auto params = found->second.kernels.find(name);
  if (params == found->second.kernels.end() || !params->second) return std::nullopt;
  if (!kernels_.contains(kernel) && params->second->size() < kMaxKept - kept_) {
    // Handles are never reused with another meaning, so this stays right.
    kernels_.emplace(kernel, *params->second);
    kept_ += 1 + params->second->size();
  }
  return *params->second;
}

std::optional<image::KernelParams> Layouts::OfKernel(uint64_t kernel) const {
  const std::lock_guard lock(mutex_);
  const auto found = kernels_.find(kernel);
  return found == kernels_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace smolvm::dispatch
