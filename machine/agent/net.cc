#include "machine/agent/net.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <net/route.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "machine/util/failure.h"
#include "protocol/base/unique_fd.h"

namespace smolvm::agent {
namespace {

using machine::ErrnoText;
using machine::Fail;

sockaddr Address(const char* text) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  inet_pton(AF_INET, text, &address.sin_addr);
  sockaddr generic;
  std::memcpy(&generic, &address, sizeof generic);
  return generic;
}

ifreq Interface(const char* name) {
  ifreq request{};
  std::strncpy(request.ifr_name, name, IFNAMSIZ - 1);
  return request;
}

bool BringUp(int socket, const char* name) {
  ifreq request = Interface(name);
  if (ioctl(socket, SIOCGIFFLAGS, &request) != 0) return false;
  request.ifr_flags |= IFF_UP | IFF_RUNNING;
  return ioctl(socket, SIOCSIFFLAGS, &request) == 0;
}

}  // namespace

void StartLoopback() {
  UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.valid() || !BringUp(fd.get(), "lo")) Fail("cannot start the loopback: {}", ErrnoText());
}

void StartNetwork() {
  UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq address = Interface("eth0");
  address.ifr_addr = Address("10.0.2.15");
  ifreq mask = Interface("eth0");
  mask.ifr_netmask = Address("255.255.255.0");
  if (ioctl(fd.get(), SIOCSIFADDR, &address) != 0 || ioctl(fd.get(), SIOCSIFNETMASK, &mask) != 0 ||
      !BringUp(fd.get(), "eth0")) {
    Fail("cannot start eth0: {}", ErrnoText());
  }
  rtentry route{};
  route.rt_dst = Address("0.0.0.0");
  route.rt_genmask = Address("0.0.0.0");
  route.rt_gateway = Address("10.0.2.2");
  route.rt_flags = RTF_UP | RTF_GATEWAY;
  if (ioctl(fd.get(), SIOCADDRT, &route) != 0 && errno != EEXIST) {
    Fail("cannot set the route: {}", ErrnoText());
  }
}

}  // namespace smolvm::agent
