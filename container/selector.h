#pragma once

#include <concepts>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "container/vendor.h"

namespace smolvm::gpu {

// A normalized GPU selector: no GPUs, every GPU that the host can pass, or explicit grants.
//
// Explicit grants are unique and sorted (vendor order, then index), and a grant of a whole vendor
// stands alone: it has absorbed that vendor's single devices.
class GpuSelector {
 public:
  GpuSelector() = default;  // off
  static GpuSelector All();
  // The grants in any order, with duplicates.
  static GpuSelector Of(std::vector<GpuGrant> grants);

  bool off() const { return !all_ && grants_.empty(); }
  bool all() const { return all_; }
  const std::vector<GpuGrant>& grants() const { return grants_; }

  // What the grants ask of `vendor`; nullopt when they do not name it, or when this is off() or
  // all().
  std::optional<DeviceChoice> ChoiceFor(GpuVendor vendor) const;

  // The selector's own spelling: "off", "all" or "nvidia:0,nvidia:1,amd".
  std::string ToString() const;

  friend bool operator==(const GpuSelector&, const GpuSelector&) = default;

 private:
  bool all_ = false;
  std::vector<GpuGrant> grants_;
};

// Parses the value of a `run.gpus` field or option into a selector.
//
//   null, false, "", []                  no GPUs
//   true, "all"                          every GPU that the host can pass
//   "nvidia", "amd", "intel"             every GPU of that vendor
//   "nvidia:N"                           one GPU of that vendor
//   "nvidia:0, amd", ["nvidia:0", "amd"] several of these; a list's items may be comma lists too
//
// Tokens are trimmed and lower-cased; empty ones are skipped. "all" wins over the rest, which must
// be well-formed nonetheless. Throws std::invalid_argument, naming the token and what is accepted.
GpuSelector normalize_gpus(std::nullopt_t);
GpuSelector normalize_gpus(std::string_view tokens);
GpuSelector normalize_gpus(std::span<const std::string> list);
// A template, so that a string literal is never taken for a boolean.
template <std::same_as<bool> Bool>
GpuSelector normalize_gpus(Bool all) {
  return all ? GpuSelector::All() : GpuSelector();
}

}  // namespace smolvm::gpu
