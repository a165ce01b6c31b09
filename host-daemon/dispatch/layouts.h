// Kernels' parameter layouts for drivers older than 12.4, which cannot be asked
// (cuFuncGetParamInfo, cuKernelGetParamInfo): read from the images that the guest loads. What an
// image does not say stays unknown, and the guest then refuses `kernelParams` by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>

#include "protocol/image/kernel_params.h"

namespace smolvm::dispatch {

// Threads: every function may be called from any thread.
class Layouts {
 public:
  // A bound on what one session makes the worker keep: parameters and kernels, of all its images.
  static constexpr size_t kMaxKept = size_t{1} << 22;

  // `image`: the id of the module or library that `flat` has become (image::FlatImage::Read).
  void AddImage(uint64_t image, std::span<const std::byte> flat);
  void RemoveImage(uint64_t image);
  // Those that ended with their context.
  void RemoveImages(const std::function<bool(uint64_t image)>& gone);
  // `kernel`: the id that the guest gets for it; found again by OfKernel.
  std::optional<image::KernelParams> Of(uint64_t image, std::string_view name, uint64_t kernel);
  std::optional<image::KernelParams> OfKernel(uint64_t kernel) const;

 private:
  struct Image {
    image::KernelParamsByName kernels;
    size_t kept = 0;
  };
  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, Image> images_;
  std::unordered_map<uint64_t, image::KernelParams> kernels_;
  size_t kept_ = 0;
};

}  // namespace smolvm::dispatch
