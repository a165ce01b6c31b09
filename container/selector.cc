#include "container/selector.h"

#include <algorithm>
#include <charconv>
#include <stdexcept>
#include <system_error>

#include "container/text.h"

namespace smolvm::gpu {
namespace {

constexpr std::string_view kAccepted =
    "accepted are 'all', or 'nvidia', 'amd' and 'intel', each alone or with a device index such as "
    "'nvidia:0', separated by commas";

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

std::string LowerAscii(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

[[noreturn]] void Reject(std::string_view what, std::string_view token) {
  throw std::invalid_argument(std::string(what) + " " + QuoteForMessage(token) + ": " +
                              std::string(kAccepted));
}

std::uint32_t ParseIndex(std::string_view digits, std::string_view token) {
  if (digits.empty() || !std::all_of(digits.begin(), digits.end(), IsDigit)) {
    Reject("bad device index in GPU selector token", token);
  }
  std::uint32_t index = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  if (error != std::errc()) Reject("device index out of range in GPU selector token", token);
  return index;
}

GpuGrant ParseToken(std::string_view token) {
  const std::size_t colon = token.find(':');
  const std::string_view name = token.substr(0, colon);
  const std::optional<GpuVendor> vendor = VendorFromName(name);
  if (!vendor) {
    Reject(name == "all" ? "'all' takes no device index: GPU selector token"
                         : "unknown GPU vendor in selector token",
           token);
  }
  if (colon == std::string_view::npos) return {*vendor, std::nullopt};
  return {*vendor, ParseIndex(token.substr(colon + 1), token)};
}

// Collects the tokens of one comma list; returns whether "all" was among them.
bool ParseCommaList(std::string_view text, std::vector<GpuGrant>& grants) {
  bool all = false;
  while (true) {
    const std::size_t comma = text.find(',');
    const std::string token = LowerAscii(Trim(text.substr(0, comma)));
    if (token == "all") {
      all = true;
    } else if (!token.empty()) {
      grants.push_back(ParseToken(token));
    }
    if (comma == std::string_view::npos) return all;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace

GpuSelector GpuSelector::All() {
  GpuSelector selector;
  selector.all_ = true;
  return selector;
}

GpuSelector GpuSelector::Of(std::vector<GpuGrant> grants) {
  GpuSelector selector;
  std::sort(grants.begin(), grants.end());  // nullopt, the whole vendor, sorts before every index
  for (const GpuGrant& grant : grants) {
    const bool covered = !selector.grants_.empty() &&
                         selector.grants_.back().vendor == grant.vendor &&
                         (!selector.grants_.back().index || selector.grants_.back() == grant);
    if (!covered) selector.grants_.push_back(grant);
  }
  return selector;
}

std::optional<DeviceChoice> GpuSelector::ChoiceFor(GpuVendor vendor) const {
  std::vector<std::uint32_t> indices;
  for (const GpuGrant& grant : grants_) {
    if (grant.vendor != vendor) continue;
    if (!grant.index) return DeviceChoice();
    indices.push_back(*grant.index);
  }
  if (indices.empty()) return std::nullopt;
  return DeviceChoice(std::move(indices));
}

std::string GpuSelector::ToString() const {
  if (all_) return "all";
  if (grants_.empty()) return "off";
  std::string text;
  for (const GpuGrant& grant : grants_) {
    if (!text.empty()) text += ',';
    text += VendorName(grant.vendor);
    if (!grant.index) continue;
    text += ':';
    text += std::to_string(*grant.index);
  }
  return text;
}

GpuSelector normalize_gpus(std::nullopt_t) { return GpuSelector(); }

GpuSelector normalize_gpus(std::string_view tokens) {
  std::vector<GpuGrant> grants;
  const bool all = ParseCommaList(tokens, grants);
  return all ? GpuSelector::All() : GpuSelector::Of(std::move(grants));
}

GpuSelector normalize_gpus(std::span<const std::string> list) {
  std::vector<GpuGrant> grants;
  bool all = false;
  for (const std::string& item : list) all |= ParseCommaList(item, grants);
  return all ? GpuSelector::All() : GpuSelector::Of(std::move(grants));
}

}  // namespace smolvm::gpu
