#include "host-daemon/emulation/device/settings.h"

#include <charconv>
#include <cstdlib>

#include "host-daemon/emulation/device/attributes.h"

namespace smolvm::emulation {
namespace {

constexpr size_t kLeastMemory = size_t{1} << 20;
constexpr size_t kMostMemory = size_t{16} << 40;

template <typename T>
std::optional<T> ParseNumber(std::string_view text) {
  T value = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec != std::errc{} || parsed.ptr != end) return std::nullopt;
  return value;
}

}  // namespace

std::optional<size_t> ParseMemory(std::string_view text) {
  size_t unit = size_t{1} << 20;
  if (!text.empty()) {
    const size_t at = std::string_view("KMG").find(text.back());
    if (at != std::string_view::npos) {
      unit = size_t{1024} << (10 * at);
      text.remove_suffix(1);
    }
  }
  const auto number = ParseNumber<size_t>(text);
  if (!number || *number > kMostMemory / unit) return std::nullopt;
  const size_t bytes = *number * unit;
  return bytes < kLeastMemory ? std::nullopt : std::optional(bytes);
}

std::optional<int> ParseComputeCapability(std::string_view text) {
  const size_t dot = text.find('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const auto major = ParseNumber<int>(text.substr(0, dot));
  const auto minor = ParseNumber<int>(text.substr(dot + 1));
  if (!major || !minor || *minor < 0 || *minor > 9) return std::nullopt;
  const int value = *major * 10 + *minor;
  return *major < 5 || value > 130 ? std::nullopt : std::optional(value);
}

std::optional<Tier> ParseTier(std::string_view text) {
  if (text == "auto") return Tier::kAuto;
  if (text == "scalar") return Tier::kScalar;
  if (text == "vector") return Tier::kVector;
  return std::nullopt;
}

bool IsVisible(std::string_view visible_devices, std::string_view uuid) {
  // With one device only the first entry counts: any other index names no device, which ends the
  // list.
  std::string_view entry = visible_devices.substr(0, visible_devices.find(','));
  while (!entry.empty() && entry.front() == ' ') entry.remove_prefix(1);
  while (!entry.empty() && entry.back() == ' ') entry.remove_suffix(1);
  if (entry.starts_with("GPU-")) return uuid.starts_with(entry);
  const auto index = ParseNumber<int>(entry);
  return index && *index == 0;
}

std::optional<Settings> ReadSettings(std::string* error) {
  Settings settings;
  if (const char* text = std::getenv("SMOLVM_CUDA_EMULATION_MEMORY"); text && *text) {
    const auto bytes = ParseMemory(text);
    if (!bytes) {
      *error = std::string("SMOLVM_CUDA_EMULATION_MEMORY is not a size (MiB, 512M, 2G): ") + text;
      return std::nullopt;
    }
    settings.memory_bytes = *bytes;
  }
  if (const char* text = std::getenv("SMOLVM_CUDA_KERNEL_MEMORY"); text && *text) {
    const auto bytes = ParseMemory(text);
    if (!bytes) {
      *error = std::string("SMOLVM_CUDA_KERNEL_MEMORY is not a size (MiB, 512M, 2G): ") + text;
      return std::nullopt;
    }
    settings.kernel_memory_bytes = *bytes;
  }
  if (const char* text = std::getenv("SMOLVM_CUDA_EMULATION_CC"); text && *text) {
    const auto capability = ParseComputeCapability(text);
    if (!capability) {
      *error = std::string("SMOLVM_CUDA_EMULATION_CC is not a compute capability (9.0): ") + text;
      return std::nullopt;
    }
    settings.compute_capability = *capability;
  }
  if (const char* text = std::getenv("SMOLVM_CUDA_EMULATION_TIER"); text && *text) {
    const auto tier = ParseTier(text);
    if (!tier) {
      *error = std::string("SMOLVM_CUDA_EMULATION_TIER is not auto, scalar or vector: ") + text;
      return std::nullopt;
    }
    settings.tier = *tier;
  }
  const std::pair<const char*, uint64_t*> times[] = {
      {"SMOLVM_CUDA_KERNEL_TIMEOUT_MS", &settings.kernel_timeout_ms},
      {"SMOLVM_CUDA_COMPILE_LIMIT_MS", &settings.compile_limit_ms}};
  for (const auto& [name, value] : times) {
    const char* text = std::getenv(name);
    if (text == nullptr || *text == '\0') continue;
    const auto number = ParseNumber<uint64_t>(text);
    if (!number) {
      *error = std::string(name) + " is not a number: " + text;
      return std::nullopt;
    }
    *value = *number;
  }
  if (const char* text = std::getenv("CUDA_VISIBLE_DEVICES"))
    settings.device_visible = IsVisible(text, DeviceUuidText());
  return settings;
}

}  // namespace smolvm::emulation
