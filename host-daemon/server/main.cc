#include <cstdio>

#include "host-daemon/limits/address_space.h"
#include "host-daemon/server/daemon.h"
#include "host-daemon/server/options.h"

namespace {

// Of the daemon and, until it loads its library, a worker: some 10 MiB each. What the library needs
// the worker tells. (Under 7 MiB the system's loader cannot start any of them, and says so itself.)
constexpr uint64_t kLeastAddressSpace = uint64_t{64} << 20;

}  // namespace

int main(int argc, char** argv) {
  const std::string denial = smolvm::AddressSpaceDenial("it", kLeastAddressSpace);
  if (!denial.empty()) {
    std::fprintf(stderr, "smolvm-cuda-daemon: %s\n", denial.c_str());
    return 1;
  }
  smolvm::server::Options options;
  const int status = smolvm::server::ParseOptions(argc, argv, &options);
  return status >= 0 ? status : smolvm::server::RunDaemon(options);
}
