#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "container/host_root.h"

namespace smolvm::gpu {

// The device nodes of the NVIDIA driver that exist below /dev.
struct NvidiaNodes {
  std::vector<std::string> cards;  // /dev/nvidia<minor>, by minor
  std::vector<std::string>
      shared;  // nvidiactl, nvidia-uvm, …, and the nodes of nvidia-caps/, by name
};
NvidiaNodes ListNvidiaNodes(const HostRoot& root);

// The PCI addresses of the cards that the driver lists in /proc/driver/nvidia/gpus, in PCI order.
std::vector<std::string> NvidiaAddresses(const HostRoot& root);

// Which minor number each of NvidiaAddresses() has: position N is the card that "nvidia:N" selects
// without CDI.
struct NvidiaMinors {
  std::vector<std::uint32_t> minors;
  // Why there is no map. One card without a readable minor rejects the whole of it: a gap would
  // shift every later index onto the wrong card.
  std::string error;
};
NvidiaMinors ReadNvidiaMinors(const HostRoot& root);

// Where the driver's map of cards lies.
inline constexpr char kNvidiaProcGpus[] = "/proc/driver/nvidia/gpus";

}  // namespace smolvm::gpu
