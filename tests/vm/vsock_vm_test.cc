// Boots a real guest kernel (QEMU, -M microvm) whose only way out is smolvm-vsock-device, and lets
// a program in the guest check it: see vsock_vm_guest.cc for what. This half boots, offers the
// services, and reads QEMU's exit status.

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/vm/vsock_vm_ports.h"

namespace smolvm::vsock_vm {
namespace {

using namespace std::chrono_literals;

constexpr auto kBootLimit = 240s;  // a boot and all checks take about 15 s on an idle machine

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

// --- Processes

std::string Output(const std::string& command) {
  std::string out;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return out;
  char buffer[4096];
  size_t n;
  while ((n = fread(buffer, 1, sizeof(buffer), pipe)) > 0) out.append(buffer, n);
  if (pclose(pipe) != 0) return "";
  while (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

// Starts `args` with its output in `log`; `ready`, if given, receives its stdout instead.
pid_t Start(const std::vector<std::string>& args, const std::string& log, int ready = -1) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  dup2(ready >= 0 ? ready : out, 1);
  dup2(out, 2);
  std::vector<char*> argv;
  for (const std::string& a : args) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  _exit(127);
}

// The exit status, or -1 if it had to be killed.
int WaitFor(pid_t pid, std::chrono::seconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  int status = 0;
  while (std::chrono::steady_clock::now() < end) {
    if (waitpid(pid, &status, WNOHANG) == pid) {
      return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
    std::this_thread::sleep_for(20ms);
  }
  kill(pid, SIGKILL);
  waitpid(pid, &status, 0);
  return -1;
}

std::string Slurp(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// A guest under TCG cannot calibrate its clock; it is told the host's frequency.
std::string TscKhz() {
  std::ifstream in("/proc/cpuinfo");
  std::string line;
  while (std::getline(in, line)) {
    if (line.rfind("cpu MHz", 0) != 0) continue;
    return fmt::format("{:.0f}", std::stod(line.substr(line.find(':') + 1)) * 1000);
  }
  return "2000000";
}

class VsockVm : public ::testing::Test {
 protected:
  void SetUp() override {
    if (Output("command -v qemu-system-x86_64").empty()) GTEST_SKIP() << "no qemu-system-x86_64";
    kernel_ = Output(SMOLVM_SOURCE_DIR "/tests/vm/fetch_kernel.sh");
    if (kernel_.empty()) GTEST_SKIP() << "no guest kernel: neither cached nor to be had from apt";
    char name[] = "/tmp/vsock-vm-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    dir_ = name;
    const std::string make =
        fmt::format(SMOLVM_SOURCE_DIR
                    "/tests/vm/make_initramfs.sh {} {} {}/initramfs virtio_ring virtio virtio_mmio "
                    "virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci vsock "
                    "vmw_vsock_virtio_transport_common vmw_vsock_virtio_transport",
                    kernel_, SMOLVM_VSOCK_VM_GUEST, dir_);
    ASSERT_EQ(std::system(make.c_str()), 0);
  }
  void TearDown() override {
    if (device_ > 0) {
      kill(device_, SIGTERM);
      EXPECT_EQ(WaitFor(device_, 10s), 0);
    }
    if (!dir_.empty() && std::system(("rm -rf " + dir_).c_str()) != 0) ADD_FAILURE() << dir_;
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

  std::vector<std::string> Qemu(const std::string& share) const {
    const bool kvm = access("/dev/kvm", R_OK | W_OK) == 0;
    std::string words = "console=ttyS0 quiet panic=-1 reboot=t mitigations=off ";
    if (!kvm) words += fmt::format("tsc_early_khz={} tsc=reliable", TscKhz());
    return {"qemu-system-x86_64",
            "-accel",
            kvm ? "kvm" : "tcg",
            "-machine",
            "microvm,memory-backend=mem,acpi=on",
            "-object",
            "memory-backend-memfd,id=mem,size=192M" + share,
            "-m",
            "192",
            "-smp",
            "1",
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-no-reboot",
            "-serial",
            "stdio",
            "-device",
            "isa-debug-exit,iobase=0xf4,iosize=4",
            "-chardev",
            "socket,id=vs,path=" + dir_ + "/vhost",
            "-device",
            "vhost-user-vsock-device,chardev=vs",
            "-kernel",
            kernel_ + "/vmlinuz",
            "-initrd",
            dir_ + "/initramfs",
            "-append",
            words};
  }

  std::string kernel_;
  std::string dir_;
  pid_t device_ = -1;
};

TEST_F(VsockVm, GuestProgramPassesAllChecks) {
  const std::string prefix = dir_ + "/port";
  Service sink(prefix + "_5001", Sink);
  Service source(prefix + "_5002", Source);
  Service echo(dir_ + "/echo", Echo);
  Service small(prefix + "_5004", Small);
  StartDevice({"--uds", prefix, "--forward", fmt::format("{}=unix:{}/echo", kEchoPort, dir_),
               "--log-level", "info"});
  const pid_t qemu = Start(Qemu(",share=on"), dir_ + "/qemu.log");
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
