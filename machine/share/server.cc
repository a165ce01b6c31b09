#include "machine/share/server.h"

#include <linux/capability.h>
#include <linux/fuse.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "host-daemon/sandbox/sandbox.h"
#include "machine/share/filesystem.h"
#include "machine/share/limits.h"
#include "protocol/log/log.h"

namespace smolvm::machine {
namespace {

bool ReceiveAll(int stream, char* data, size_t size) {
  while (size > 0) {
    const ssize_t n = recv(stream, data, size, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    data += n;
    size -= n;
  }
  return true;
}

bool SendAll(int stream, std::string_view data) {
  while (!data.empty()) {
    const ssize_t n = send(stream, data.data(), data.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    data.remove_prefix(n);
  }
  return true;
}

// One descriptor per file that the guest's kernel knows.
void RaiseDescriptorLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// What the server may still do: to this share alone, on files as their owner would. Without root's
// other rights the kernel takes set-user-id and set-group-id bits off a file that is written, as it
// does for anybody (CAP_FSETID), and makes no devices (CAP_MKNOD).
bool Confine(const std::string& root, bool read_only) {
  using sandbox::SandboxNeeds;
  const SandboxNeeds needs{
      .folder = root,
      .entries = read_only ? SandboxNeeds::Entries::kRead : SandboxNeeds::Entries::kServe,
      .capabilities = uint64_t{1} << CAP_CHOWN | uint64_t{1} << CAP_DAC_OVERRIDE |
                      uint64_t{1} << CAP_DAC_READ_SEARCH | uint64_t{1} << CAP_FOWNER};
  std::string error;
  if (sandbox::EnterSandbox(needs, &error)) return true;
  log::Error("event=share_unconfined root={} reason={}", log::Quote(root), log::Quote(error));
  return false;
}

std::string EncodeReply(uint64_t unique, const ShareReply& reply) {
  fuse_out_header header{};
  header.len = sizeof header + (reply.error == 0 ? reply.data.size() : 0);
  header.error = -reply.error;
  header.unique = unique;
  std::string out(reinterpret_cast<const char*>(&header), sizeof header);
  if (reply.error == 0) out += reply.data;
  return out;
}

}  // namespace

int ServeShare(int stream, const std::string& root, bool read_only) {
  RaiseDescriptorLimit();
  umask(0);  // the guest's kernel has applied the program's
  ShareFilesystem filesystem(read_only);
  if (!filesystem.OpenRoot(root) || !Confine(root, read_only)) return 1;
  std::vector<char> body(kMaxShareMessage);
  fuse_in_header header;
  while (ReceiveAll(stream, reinterpret_cast<char*>(&header), sizeof header)) {
    if (header.len < sizeof header || header.len > kMaxShareMessage) return 1;
    const size_t size = header.len - sizeof header;
    if (!ReceiveAll(stream, body.data(), size)) return 1;
    const ShareReply reply = filesystem.Handle(header, {body.data(), size});
    if (!reply.none && !SendAll(stream, EncodeReply(header.unique, reply))) return 0;
  }
  return 0;
}

}  // namespace smolvm::machine
