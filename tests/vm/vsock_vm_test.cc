// Boots a real guest kernel (QEMU, -M microvm) whose only way out is smolvm-vsock-device, and lets
// a program in the guest check it: see vsock_vm_guest.cc for what. This half boots, offers the
// services, and reads QEMU's exit status.

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/vm/direct_vm.h"
#include "tests/vm/vsock_vm_ports.h"

namespace smolvm::vsock_vm {
namespace {

bool WriteAll(int fd, const void* data, size_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t n = send(fd, at, size, MSG_NOSIGNAL);
    if (n <= 0) return false;
    at += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

// --- The services, each run for one connection on a thread of its own.

void Sink(int fd) {
  Digest digest;
  uint64_t total = 0;
  std::vector<uint8_t> chunk(256 * 1024);
  ssize_t n;
  while ((n = read(fd, chunk.data(), chunk.size())) > 0) {
    digest.Add(chunk.data(), static_cast<size_t>(n));
    total += static_cast<uint64_t>(n);
  }
  const uint64_t answer[2] = {total, digest.value()};
  WriteAll(fd, answer, sizeof(answer));
}

void Source(int fd) {
  uint64_t left = 0;
  if (recv(fd, &left, sizeof(left), MSG_WAITALL) != sizeof(left)) return;
  Pattern pattern;
  std::vector<uint8_t> chunk(256 * 1024);
  while (left > 0) {
    const size_t n = std::min<uint64_t>(chunk.size(), left);
    pattern.Fill(chunk.data(), n);
    if (!WriteAll(fd, chunk.data(), n)) return;
    left -= n;
  }
}

void Echo(int fd) {
  std::vector<uint8_t> chunk(64 * 1024);
  ssize_t n;
  while ((n = read(fd, chunk.data(), chunk.size())) > 0) {
    if (!WriteAll(fd, chunk.data(), static_cast<size_t>(n))) return;
  }
}

void Small(int fd) {
  for (uint32_t i = 0; i < kSmallMessages; ++i) {
    std::array<uint32_t, kSmallMessageBytes / 4> message{};
    message[0] = i;
    if (!WriteAll(fd, message.data(), sizeof(message))) return;
  }
}

class Service {
 public:
  Service(std::string path, std::function<void(int)> serve) : serve_(std::move(serve)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    listener_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0) << path;
    EXPECT_EQ(listen(listener_, 256), 0);
    acceptor_ = std::thread([this] { Accept(); });
  }
  ~Service() {
    shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    for (std::thread& t : threads_) t.join();
    close(listener_);
  }

 private:
  void Accept() {
    int fd;
    while ((fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0) {
      threads_.emplace_back([this, fd] {
        serve_(fd);
        close(fd);
      });
    }
  }
  const std::function<void(int)> serve_;
  int listener_ = -1;
  std::thread acceptor_;
  std::vector<std::thread> threads_;
};

class VsockVm : public DirectVm {
 protected:
  void SetUp() override {
    DirectVm::SetUp();
    if (!IsSkipped()) MakeInitramfs(SMOLVM_VSOCK_VM_GUEST);
  }
  void StartDevice(std::vector<std::string> more) {
    int ready[2];
    ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
    std::vector<std::string> args = {SMOLVM_VSOCK_DEVICE, "--socket", dir_ + "/vhost", "--cid",
                                     std::to_string(kGuestCid)};
    args.insert(args.end(), more.begin(), more.end());
    device_ = Start(args, dir_ + "/device.log", ready[1]);
    close(ready[1]);
    char line[6] = {};
    EXPECT_EQ(read(ready[0], line, 6), 6) << Slurp(dir_ + "/device.log");
    EXPECT_EQ(std::string(line, 6), "ready\n");
    close(ready[0]);
  }
};

TEST_F(VsockVm, GuestProgramPassesAllChecks) {
  const std::string prefix = dir_ + "/port";
  Service sink(prefix + "_5001", Sink);
  Service source(prefix + "_5002", Source);
  Service echo(dir_ + "/echo", Echo);
  Service small(prefix + "_5004", Small);
  StartDevice({"--uds", prefix, "--forward", fmt::format("{}=unix:{}/echo", kEchoPort, dir_),
               "--log-level", "info"});
  const pid_t qemu = Start(Qemu(192), dir_ + "/qemu.log");
  const int status = WaitFor(qemu, kBootLimit);
  const std::string log = Slurp(dir_ + "/qemu.log");
  const std::string device_log = Slurp(dir_ + "/device.log");
  std::printf("%s\n%s\n", log.c_str(), device_log.c_str());
  // The guest writes 1 to the debug port if no check failed.
  EXPECT_EQ(status, 3) << log << device_log;
  EXPECT_NE(log.find("guest: 0 checks failed"), std::string::npos);
  EXPECT_EQ(device_log.find("level=error"), std::string::npos);
}

}  // namespace
}  // namespace smolvm::vsock_vm
