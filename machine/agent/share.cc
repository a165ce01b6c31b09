#include "machine/agent/share.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "machine/agent/mount.h"
#include "machine/share/limits.h"
#include "machine/util/failure.h"

namespace smolvm::agent {
namespace {

using machine::ErrnoText;
using machine::Fail;

bool SendAll(int fd, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t n = send(fd, data, size, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    data += n;
    size -= n;
  }
  return true;
}

// A request is one read(2) from the kernel; its first word is its length, which is all the framing
// that the stream needs (fuse_in_header, fuse_out_header in <linux/fuse.h>).
bool CarryRequest(int device, int host, std::vector<char>* buffer) {
  const ssize_t n = read(device, buffer->data(), buffer->size());
  if (n < 0) return errno == EINTR || errno == EAGAIN || errno == ENOENT;
  return n > 0 && SendAll(host, buffer->data(), n);
}

bool CarryReplies(int device, int host, std::string* pending, std::vector<char>* buffer) {
  const ssize_t n = recv(host, buffer->data(), buffer->size(), 0);
  if (n < 0) return errno == EINTR;
  if (n == 0) return false;
  pending->append(buffer->data(), n);
  size_t used = 0;
  while (pending->size() - used >= sizeof(uint32_t)) {
    uint32_t size;
    std::memcpy(&size, pending->data() + used, sizeof size);
    if (size < 16 || size > machine::kMaxShareMessage) return false;
    if (pending->size() - used < size) break;
    // ENOENT: the request was interrupted meanwhile and nobody waits for the reply.
    if (write(device, pending->data() + used, size) < 0 && errno != ENOENT && errno != EINVAL) {
      return false;
    }
    used += size;
  }
  pending->erase(0, used);
  return true;
}

[[noreturn]] void Carry(int device, int host) {
  prctl(PR_SET_NAME, "smolvm-share");
  std::ofstream("/proc/self/oom_score_adj") << "-1000";
  std::vector<char> buffer(machine::kMaxShareMessage);
  std::string pending;
  while (true) {
    pollfd fds[2] = {{device, POLLIN, 0}, {host, POLLIN, 0}};
    if (poll(fds, 2, -1) < 0 && errno != EINTR) break;
    if (fds[0].revents && !CarryRequest(device, host, &buffer)) break;
    if (fds[1].revents && !CarryReplies(device, host, &pending, &buffer)) break;
  }
  _exit(0);  // closing the device fails what still waits for the file system
}

void MakeTarget(const machine::GuestShare& share) {
  const std::filesystem::path path = share.path;
  if (!share.is_file) return MakePath(path);
  MakePath(path.parent_path());
  const UniqueFd file(open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
}

}  // namespace

pid_t MountShare(const Endpoint& endpoint, const machine::Hello& hello,
                 const machine::GuestShare& share) {
  UniqueFd host = Connect(endpoint, hello);
  if (!host.valid()) Fail("cannot reach the host's side of {}: {}", share.path, ErrnoText());
  UniqueFd device(open("/dev/fuse", O_RDWR | O_CLOEXEC));
  if (!device.valid()) Fail("cannot open /dev/fuse: {}", ErrnoText());
  MakeTarget(share);
  const std::string options =
      fmt::format("fd={},rootmode={},user_id=0,group_id=0,allow_other,default_permissions",
                  device.get(), share.is_file ? "100000" : "40000");
  const unsigned long flags = MS_NOSUID | MS_NODEV | (share.read_only ? MS_RDONLY : 0);
  if (mount("smolvm", share.path.c_str(), "fuse.smolvm", flags, options.c_str()) != 0) {
    Fail("cannot mount {}: {}", share.path, ErrnoText());
  }
  const pid_t child = fork();
  if (child < 0) Fail("cannot start the process of {}: {}", share.path, ErrnoText());
  if (child == 0) Carry(device.get(), host.get());
  return child;
}

}  // namespace smolvm::agent
