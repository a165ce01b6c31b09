#include "container/format.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "container/text.h"

namespace smolvm::gpu {
namespace {

// White space, wildcards, quotes and everything else that a shell may act on are left out.
constexpr std::string_view kShellSafe =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";

void CheckWords(const std::vector<std::string>& words, ArgsFormat format) {
  for (const std::string& word : words) {
    const bool safe = format == ArgsFormat::kShell
                          ? !word.empty() && word.find_first_not_of(kShellSafe) == std::string::npos
                      : format == ArgsFormat::kLines ? word.find('\n') == std::string::npos
                                                     : ReplaceInvalidUtf8(word) == word;
    if (safe) continue;
    throw GpuConfigError("the argument " + QuoteForMessage(word) +
                             " cannot be written in this --format without being changed",
                         "Use another --format (lines, json), or `smolvm gpu run`, which passes "
                         "every argument as it is.");
  }
}

// "0=0000:01:00.0, 1=0000:02:00.0".
std::string IndexedAddresses(const DetectedVendor& found) {
  std::vector<std::string> indexed;
  indexed.reserve(found.addresses.size());
  for (const std::string& address : found.addresses) {
    indexed.push_back(std::to_string(indexed.size()) + "=" + address);
  }
  return Join(indexed, ", ");
}

std::string Table(const std::vector<DetectedVendor>& detected) {
  if (detected.empty()) return "no GPU that can be passed to a container\n";
  std::string table = "VENDOR  MECHANISM  DEVICES\n";
  for (const DetectedVendor& found : detected) {
    std::string line(VendorName(found.vendor));
    line.resize(8, ' ');
    line += MechanismName(found.mechanism);
    line.resize(19, ' ');
    if (found.mechanism == Mechanism::kCdi) {
      line += std::string(CdiKind(found.vendor)) + " in";
      for (const std::string& file : found.cdi_files) line += " " + file;
      if (!found.addresses.empty()) line += "; on the PCI bus " + IndexedAddresses(found);
    } else {
      line += IndexedAddresses(found);
    }
    table += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return table;
}

std::string Json(const std::vector<DetectedVendor>& detected) {
  using nlohmann::ordered_json;
  ordered_json vendors = ordered_json::array();
  for (const DetectedVendor& found : detected) {
    ordered_json entry = {{"vendor", VendorName(found.vendor)},
                          {"mechanism", MechanismName(found.mechanism)},
                          {"addresses", found.addresses}};
    if (found.mechanism == Mechanism::kCdi) {
      entry["cdi"] = {{"kind", CdiKind(found.vendor)},
                      {"files", found.cdi_files},
                      {"devices", found.cdi_devices}};
    }
    vendors.push_back(std::move(entry));
  }
  // File names need not be UTF-8; what is not is shown as U+FFFD.
  return ordered_json{{"vendors", vendors}}.dump(2, ' ', false,
                                                 ordered_json::error_handler_t::replace) +
         "\n";
}

}  // namespace

std::string FormatArgs(const std::vector<std::string>& words, ArgsFormat format) {
  CheckWords(words, format);
  if (format == ArgsFormat::kJson) return nlohmann::json(words).dump() + "\n";
  const char separator = format == ArgsFormat::kShell ? ' ' : '\n';
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += separator;
    text += word;
  }
  return text.empty() ? "" : text + "\n";
}

std::string FormatDetected(const std::vector<DetectedVendor>& detected, bool json) {
  return json ? Json(detected) : Table(detected);
}

}  // namespace smolvm::gpu
