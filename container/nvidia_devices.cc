#include "container/nvidia_devices.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "container/pci_address.h"
#include "container/text.h"

namespace smolvm::gpu {
namespace {

constexpr std::string_view kPrefix = "nvidia";

bool IsCard(std::string_view name) {
  return name.size() > kPrefix.size() &&
         name.find_first_not_of("0123456789", kPrefix.size()) == std::string_view::npos;
}

// The number after "Device Minor:" in a card's information file.
std::optional<std::uint32_t> MinorIn(std::string_view information) {
  constexpr std::string_view kLabel = "Device Minor:";
  while (!information.empty()) {
    const std::size_t end = information.find('\n');
    std::string_view line = information.substr(0, end);
    information.remove_prefix(end == std::string_view::npos ? information.size() : end + 1);
    if (!line.starts_with(kLabel)) continue;
    line = Trim(line.substr(kLabel.size()));
    std::uint32_t minor = 0;
    const auto [last, error] = std::from_chars(line.data(), line.data() + line.size(), minor);
    if (error != std::errc() || last != line.data() + line.size()) return std::nullopt;
    return minor;
  }
  return std::nullopt;
}

}  // namespace

NvidiaNodes ListNvidiaNodes(const HostRoot& root) {
  NvidiaNodes nodes;
  for (const std::string& name : root.List("/dev").value_or(std::vector<std::string>())) {
    if (!name.starts_with(kPrefix)) continue;
    const std::string path = "/dev/" + name;
    if (root.Look(path) != HostRoot::Entry::kDirectory) {
      (IsCard(name) ? nodes.cards : nodes.shared).push_back(path);
      continue;
    }
    // nvidia-caps and its like: podman would hand over everything below a directory, so name what
    // is there now.
    for (const std::string& inner : root.List(path).value_or(std::vector<std::string>())) {
      const std::string node = path + "/" + inner;
      if (root.Look(node) != HostRoot::Entry::kDirectory) nodes.shared.push_back(node);
    }
  }
  std::sort(nodes.cards.begin(), nodes.cards.end(), [](const auto& a, const auto& b) {
    return a.size() == b.size() ? a < b : a.size() < b.size();
  });
  return nodes;
}

std::vector<std::string> NvidiaAddresses(const HostRoot& root) {
  std::vector<std::string> addresses =
      root.List(kNvidiaProcGpus).value_or(std::vector<std::string>());
  std::sort(addresses.begin(), addresses.end(), PciAddressLess);
  return addresses;
}

NvidiaMinors ReadNvidiaMinors(const HostRoot& root) {
  NvidiaMinors map;
  for (const std::string& address : NvidiaAddresses(root)) {
    const std::string file = std::string(kNvidiaProcGpus) + "/" + address + "/information";
    const std::optional<std::uint32_t> minor = MinorIn(root.Read(file).text);
    if (!minor) return {{}, file + " gives no 'Device Minor', so no index can be trusted"};
    if (std::find(map.minors.begin(), map.minors.end(), *minor) != map.minors.end()) {
      return {{}, file + " repeats the minor of another card, so no index can be trusted"};
    }
    map.minors.push_back(*minor);
  }
  if (map.minors.empty()) map.error = std::string(kNvidiaProcGpus) + " lists no cards";
  return map;
}

}  // namespace smolvm::gpu
