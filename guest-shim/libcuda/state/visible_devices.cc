#include "guest-shim/libcuda/state/visible_devices.h"

#include <algorithm>
#include <cctype>
#include <string>

namespace smolvm::guest {
namespace {

std::string UuidText(const std::string& uuid) {
  static const char kDigits[] = "0123456789abcdef";
  std::string text = "gpu-";
  for (size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    const auto byte = static_cast<unsigned char>(uuid[i]);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::string Normalised(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (!isspace(static_cast<unsigned char>(c)))
      out += static_cast<char>(tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

// The device that one entry names; -1 when it names none, or several.
int Resolve(const std::vector<api::Device>& devices, const std::string& entry) {
  if (entry.empty()) return -1;
  if (std::all_of(entry.begin(), entry.end(), [](unsigned char c) { return isdigit(c); })) {
    if (entry.size() > 6) return -1;
    const int ordinal = std::stoi(entry);
    return ordinal < static_cast<int>(devices.size()) ? ordinal : -1;
  }
  if (entry.rfind("gpu-", 0) != 0) return -1;
  int found = -1;
  for (size_t i = 0; i < devices.size(); ++i) {
    if (UuidText(devices[i].uuid).rfind(entry, 0) != 0) continue;
    if (found >= 0) return -1;
    found = static_cast<int>(i);
  }
  return found;
}

}  // namespace

std::vector<int> VisibleDevices(const std::vector<api::Device>& devices, const char* text) {
  std::vector<int> visible;
  if (!text) {
    for (size_t i = 0; i < devices.size(); ++i) visible.push_back(static_cast<int>(i));
    return visible;
  }
  const std::string list = text;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const int ordinal = Resolve(devices, Normalised(list.substr(begin, end - begin)));
    if (ordinal < 0) break;
    // A device named twice makes the whole list invalid.
    if (std::find(visible.begin(), visible.end(), ordinal) != visible.end()) return {};
    visible.push_back(ordinal);
    begin = end + 1;
  }
  return visible;
}

}  // namespace smolvm::guest
