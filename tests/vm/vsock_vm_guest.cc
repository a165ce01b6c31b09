// The guest's half of the vsock VM test: /init of a tiny initramfs, and the only program there.
// Loads the modules, runs every check against the host's services, and ends the machine with the
// result as QEMU's exit status (isa-debug-exit): 2 * n + 1 for the number n of failed checks + 1.

#include <fcntl.h>
#include <linux/vm_sockets.h>
#include <poll.h>
#include <sys/io.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tests/vm/vsock_vm_ports.h"

namespace {

using namespace smolvm::vsock_vm;  // NOLINT: one small program

constexpr uint16_t kDebugExitPort = 0xf4;
int g_failures = 0;

void Check(bool ok, const char* what) {
  std::printf("guest: %-58s %s\n", what, ok ? "ok" : "FAILED");
  if (!ok) {
    std::printf("guest: errno %d (%s)\n", errno, std::strerror(errno));
    ++g_failures;
  }
  std::fflush(stdout);
}

void LoadModules() {
  std::FILE* list = std::fopen("/modules/list", "r");
  if (list == nullptr) return Check(false, "module list");
  char name[256];
  while (std::fscanf(list, "%255s", name) == 1) {
    const int fd = open(name, O_RDONLY);
    if (syscall(SYS_finit_module, fd, "", 0) != 0 && errno != EEXIST) Check(false, name);
    close(fd);
  }
  std::fclose(list);
}

// `buffer` bytes of own buffer, or the default if 0.
int Connect(uint32_t port, uint64_t buffer = 0) {
  const int fd = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (buffer != 0) {
    setsockopt(fd, AF_VSOCK, SO_VM_SOCKETS_BUFFER_MAX_SIZE, &buffer, sizeof(buffer));
    setsockopt(fd, AF_VSOCK, SO_VM_SOCKETS_BUFFER_SIZE, &buffer, sizeof(buffer));
  }
  sockaddr_vm address{};
  address.svm_family = AF_VSOCK;
  address.svm_cid = VMADDR_CID_HOST;
  address.svm_port = port;
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
  }
  return fd;
}

bool WriteAll(int fd, const void* data, size_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t n = write(fd, at, size);
    if (n <= 0) return false;
    at += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

bool ReadAll(int fd, void* data, size_t size) {
  char* at = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t n = read(fd, at, size);
    if (n <= 0) return false;
    at += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

double Seconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
}

// Sends, half-closes, and reads what the host counted.
bool SendBulk(uint64_t bytes, uint64_t buffer) {
  const int fd = Connect(kSinkPort, buffer);
  if (fd < 0) return false;
  Pattern pattern;
  Digest digest;
  std::vector<uint8_t> chunk(256 * 1024);
  const auto start = std::chrono::steady_clock::now();
  for (uint64_t done = 0; done < bytes;) {
    const size_t n = std::min<uint64_t>(chunk.size(), bytes - done);
    pattern.Fill(chunk.data(), n);
    digest.Add(chunk.data(), n);
    if (!WriteAll(fd, chunk.data(), n)) return false;
    done += n;
  }
  shutdown(fd, SHUT_WR);
  uint64_t answer[2] = {};
  const bool ok = ReadAll(fd, answer, sizeof(answer)) && read(fd, &answer, 1) == 0 &&
                  answer[0] == bytes && answer[1] == digest.value();
  std::printf("guest: sent %llu bytes in %.2f s\n", static_cast<unsigned long long>(bytes),
              Seconds(start));
  close(fd);
  return ok;
}

bool ReceiveBulk(uint64_t bytes, uint64_t buffer) {
  const int fd = Connect(kSourcePort, buffer);
  if (fd < 0 || !WriteAll(fd, &bytes, sizeof(bytes))) return false;
  Digest digest;
  uint64_t done = 0;
  std::vector<uint8_t> chunk(256 * 1024);
  const auto start = std::chrono::steady_clock::now();
  ssize_t n;
  while ((n = read(fd, chunk.data(), chunk.size())) > 0) {
    digest.Add(chunk.data(), static_cast<size_t>(n));
    done += static_cast<uint64_t>(n);
  }
  std::printf("guest: received %llu bytes in %.2f s\n", static_cast<unsigned long long>(done),
              Seconds(start));
  close(fd);
  Digest expected;
  Pattern pattern;
  for (uint64_t left = bytes; left > 0;) {
    const size_t part = std::min<uint64_t>(chunk.size(), left);
    pattern.Fill(chunk.data(), part);
    expected.Add(chunk.data(), part);
    left -= part;
  }
  return n == 0 && done == bytes && digest.value() == expected.value();
}

// Both directions at once through an echo, more than all buffers hold, so that each side blocks.
bool EchoBulk(uint64_t bytes) {
  const int fd = Connect(kEchoPort);
  if (fd < 0) return false;
  fcntl(fd, F_SETFL, O_NONBLOCK);
  Pattern out_pattern;
  Digest sent_digest, got_digest;
  std::vector<uint8_t> out, in(64 * 1024);
  uint64_t sent = 0, got = 0;
  size_t out_at = 0;
  while (got < bytes) {
    if (out_at == out.size() && sent < bytes) {
      out.resize(std::min<uint64_t>(64 * 1024, bytes - sent));
      out_pattern.Fill(out.data(), out.size());
      sent_digest.Add(out.data(), out.size());
      sent += out.size();
      out_at = 0;
    }
    pollfd p = {fd, static_cast<short>(POLLIN | (out_at < out.size() ? POLLOUT : 0)), 0};
    if (poll(&p, 1, 60000) <= 0) return false;
    if (p.revents & POLLOUT) {
      const ssize_t n = write(fd, out.data() + out_at, out.size() - out_at);
      if (n < 0 && errno != EAGAIN) return false;
      if (n > 0) out_at += static_cast<size_t>(n);
    }
    if (p.revents & (POLLIN | POLLHUP)) {
      const ssize_t n = read(fd, in.data(), in.size());
      if (n == 0 || (n < 0 && errno != EAGAIN)) return false;
      if (n > 0) got_digest.Add(in.data(), static_cast<size_t>(n));
      if (n > 0) got += static_cast<uint64_t>(n);
    }
  }
  close(fd);
  return got == bytes && got_digest.value() == sent_digest.value();
}

bool RoundTrips(int count) {
  const int fd = Connect(kEchoPort);
  if (fd < 0) return false;
  std::vector<double> times;
  char message[32] = "ping", answer[32];
  for (int i = 0; i < count; ++i) {
    const auto start = std::chrono::steady_clock::now();
    message[31] = static_cast<char>(i);
    if (!WriteAll(fd, message, sizeof(message)) || !ReadAll(fd, answer, sizeof(answer)) ||
        std::memcmp(message, answer, sizeof(answer)) != 0) {
      return false;
    }
    times.push_back(Seconds(start));
  }
  std::sort(times.begin(), times.end());
  std::printf("guest: round trip p50 %.0f us, p99 %.0f us\n", times[times.size() / 2] * 1e6,
              times[times.size() * 99 / 100] * 1e6);
  close(fd);
  return true;
}

bool ManyAtOnce(int count) {
  std::vector<int> fds;
  for (int i = 0; i < count; ++i) {
    fds.push_back(Connect(kEchoPort));
    if (fds.back() < 0) return false;
  }
  bool ok = true;
  for (int i = 0; i < count; ++i) ok = ok && WriteAll(fds[i], &i, sizeof(i));
  for (int i = count - 1; i >= 0; --i) {
    int answer = -1;
    ok = ok && ReadAll(fds[i], &answer, sizeof(answer)) && answer == i;
    close(fds[i]);
  }
  return ok;
}

bool OneAfterTheOther(int count) {
  for (int i = 0; i < count; ++i) {
    if (!ManyAtOnce(1)) return false;
  }
  return true;
}

// The host has written all of its small messages before the first is read.
bool ManySmallUnread() {
  const int fd = Connect(kSmallPort);
  if (fd < 0) return false;
  usleep(500'000);
  for (uint32_t i = 0; i < kSmallMessages; ++i) {
    uint32_t message[kSmallMessageBytes / 4];
    if (!ReadAll(fd, message, sizeof(message)) || message[0] != i) return false;
  }
  char more;
  const bool ended = read(fd, &more, 1) == 0;
  close(fd);
  return ended;
}

void RunChecks() {
  Check(Connect(kDeadPort) < 0 && errno == ECONNRESET,
        "connecting to a dead port is refused at once");
  Check(RoundTrips(1000), "1000 round trips of 32 bytes");
  Check(SendBulk(262144, 0), "exactly 262144 bytes to the host");
  Check(SendBulk(262145, 0), "262145 bytes to the host");
  Check(SendBulk(kBulkBytes, 0), "bulk to the host, default buffer");
  Check(SendBulk(2 << 20, 16384), "2 MiB to the host, own buffer of 16 KiB");
  Check(SendBulk(kBulkBytes, 4 << 20), "bulk to the host, own buffer of 4 MiB");
  Check(ReceiveBulk(0, 0), "nothing from the host");
  Check(ReceiveBulk(kBulkBytes, 0), "bulk from the host, default buffer");
  Check(ReceiveBulk(2 << 20, 16384), "2 MiB from the host, own buffer of 16 KiB");
  Check(ReceiveBulk(kBulkBytes, 4 << 20), "bulk from the host, own buffer of 4 MiB");
  Check(EchoBulk(8 << 20), "8 MiB both ways at once");
  Check(ManyAtOnce(100), "100 streams at once");
  Check(OneAfterTheOther(100), "100 streams one after the other");
  Check(ManySmallUnread(), "4000 small messages that the guest reads late");
}

}  // namespace

int main() {
  mkdir("/dev", 0755);
  mount("devtmpfs", "/dev", "devtmpfs", 0, nullptr);
  const int console = open("/dev/console", O_RDWR);
  for (int fd = 0; console >= 0 && fd < 3; ++fd) dup2(console, fd);
  LoadModules();
  RunChecks();
  std::printf("guest: %d checks failed\n", g_failures);
  std::fflush(stdout);
  if (ioperm(kDebugExitPort, 1, 1) == 0) outb(static_cast<uint8_t>(g_failures + 1), kDebugExitPort);
  std::printf("guest: no debug-exit device\n");
  return 1;
}
