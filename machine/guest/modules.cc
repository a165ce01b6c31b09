#include "machine/guest/modules.h"

#include <functional>
#include <set>

namespace smolvm::machine {

const std::vector<std::string>& WantedModules() {
  static const std::vector<std::string> wanted = {
      "virtio_mmio", "virtio_pci", "vmw_vsock_virtio_transport",
      "virtio_blk",  "erofs",      "overlay",
      "ext4",        "fuse",       "virtio_net"};
  return wanted;
}

std::vector<std::string> ModuleDependencies(std::string_view module_file) {
  // Each entry of .modinfo is a zero-terminated key=value.
  constexpr std::string_view kKey("\0depends=", 9);
  std::vector<std::string> names;
  const size_t at = module_file.find(kKey);
  if (at == std::string_view::npos) return names;
  std::string_view list = module_file.substr(at + kKey.size());
  list = list.substr(0, list.find('\0'));
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    if (comma > 0) names.emplace_back(list.substr(0, comma));
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return names;
}

std::vector<std::string> LoadOrder(const std::vector<std::string>& wanted,
                                   const std::map<std::string, std::vector<std::string>>& depends) {
  std::vector<std::string> order;
  std::set<std::string> seen;
  const std::function<void(const std::string&)> visit = [&](const std::string& name) {
    const auto module = depends.find(name);
    if (module == depends.end() || !seen.insert(name).second) return;
    for (const std::string& needed : module->second) visit(needed);
    order.push_back(name);
  };
  for (const std::string& name : wanted) visit(name);
  return order;
}

}  // namespace smolvm::machine
