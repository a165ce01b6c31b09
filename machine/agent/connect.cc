#include "machine/agent/connect.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

// <linux/vm_sockets.h> needs sockaddr first.
#include <linux/vm_sockets.h>

namespace smolvm::agent {
namespace {

// The device's credit is what the guest's own buffer allows; the default of 256 KiB makes a stream
// wait for every quarter of it.
constexpr uint64_t kVsockBuffer = 4 << 20;

UniqueFd OpenVsock(uint32_t port) {
  UniqueFd fd(socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return fd;
  setsockopt(fd.get(), AF_VSOCK, SO_VM_SOCKETS_BUFFER_MAX_SIZE, &kVsockBuffer, sizeof kVsockBuffer);
  setsockopt(fd.get(), AF_VSOCK, SO_VM_SOCKETS_BUFFER_SIZE, &kVsockBuffer, sizeof kVsockBuffer);
  sockaddr_vm address{};
  address.svm_family = AF_VSOCK;
  address.svm_cid = VMADDR_CID_HOST;
  address.svm_port = port;
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) fd.reset();
  return fd;
}

UniqueFd OpenUnix(const std::string& path) {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (!fd.valid() || path.size() >= sizeof address.sun_path) return UniqueFd();
  std::memcpy(address.sun_path, path.data(), path.size());
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) fd.reset();
  return fd;
}

}  // namespace

UniqueFd Connect(const Endpoint& endpoint, const machine::Hello& hello) {
  UniqueFd fd =
      endpoint.unix_path.empty() ? OpenVsock(endpoint.port) : OpenUnix(endpoint.unix_path);
  if (!fd.valid()) return fd;
  machine::Channel channel(std::move(fd), machine::kMaxFrameFromHost);
  if (!channel.Send(machine::FrameType::kHello, machine::EncodeHello(hello))) return UniqueFd();
  return UniqueFd(channel.ReleaseFd());
}

}  // namespace smolvm::agent
