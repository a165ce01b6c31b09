#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "container/host.h"
#include "container/vendor.h"

namespace smolvm::gpu {

// Every device kind that the host's CDI specs declare.
class CdiSpecs {
 public:
  struct Device {
    std::string file;                // the spec whose declaration counts: the last folder's
    std::vector<std::string> needs;  // of the host, by that spec
    // Specs of one folder that declare it, each of them: podman resolves such a device no more.
    std::set<std::string> twins;
  };
  struct Kind {
    std::map<std::string, Device, std::less<>> devices;  // by name; empty when no spec names any
    std::vector<std::string> files;                      // the specs that declare it

    std::vector<std::string> Names() const;
  };
  // What podman may not know of a spec.
  struct Novelty {
    std::string version;
    std::vector<std::string> fields;
  };

  // The kind of the vendor's GPUs, or nullptr when no spec declares it.
  const Kind* Declared(GpuVendor vendor) const;
  // The same, but nullptr also when podman is too old to resolve CDI names.
  const Kind* Usable(GpuVendor vendor) const;

  // Set when podman is known to predate CDI.
  std::optional<PodmanVersion> too_old;
  // "PATH: reason" for each spec that was passed over.
  std::vector<std::string> skipped;
  // For messages: the directories, or "the specs that podman lists".
  std::string looked_in;

  std::map<std::string, Kind, std::less<>> kinds;
  std::map<std::string, Novelty, std::less<>> novelties;  // by file, where there are any
};

// What keeps podman from handing over `name` of the vendor's kind although specs declare the kind:
// no such device, two specs of one folder that declare it, something of the host that is gone. ""
// when nothing is known to.
std::string WhyNotUsable(GpuVendor vendor, std::string_view name, const CdiSpecs::Kind& kind,
                         const HostRoot& root);
// How to put that right.
extern const std::string_view kSpecHint;

// Reads the specs that podman lists or, when podman is missing, fails or lists none, every .json
// and .yaml file in the spec directories: those that containers.conf sets, else /etc/cdi and
// /var/run/cdi. A spec that cannot be read or parsed is passed over.
CdiSpecs LoadCdiSpecs(const Host& host);

// Calls host.warn for the specs that were passed over: the first few by name, then their number.
void WarnOfSkippedSpecs(const CdiSpecs& specs, const Host& host);

// At most this many spec files are read, and this many bytes of them.
inline constexpr std::size_t kMostCdiFiles = 4096;
inline constexpr std::size_t kMostCdiBytes = 64 << 20;

}  // namespace smolvm::gpu
