#include "tests/vm/direct_vm.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include "machine/guest/accelerator.h"
#include "machine/util/failure.h"
#include "machine/util/tool.h"

namespace smolvm::vsock_vm {

using namespace std::chrono_literals;

// Where `smolvm machine` keeps kernels and verdicts when the tests run it.
constexpr char kCache[] = SMOLVM_TEST_CACHE "/smolvm-cuda";

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

pid_t Start(const std::vector<std::string>& args, const std::string& log, int ready) {
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

void DirectVm::SetUp() {
  if (machine::FindProgram(machine::kQemuProgram).empty())
    GTEST_SKIP() << "no " << machine::kQemuProgram;
  try {
    kernel_ = machine::EnsureKernel(kCache);
  } catch (const machine::Failure& failure) {
    GTEST_SKIP() << failure.what();
  }
  setenv("SMOLVM_MACHINE_AGENT", SMOLVM_AGENT, 1);  // for a trial of KVM
  const machine::AcceleratorChoice choice =
      machine::ChooseAccelerator(machine::ChosenWish(), kernel_.image, kCache);
  host_ = machine::AskHost();
  host_.accelerator = choice.accelerator;
  host_.cpu = choice.cpu;
  char name[] = "/tmp/vsock-vm-XXXXXX";
  ASSERT_NE(mkdtemp(name), nullptr);
  dir_ = name;
}

void DirectVm::TearDown() {
  if (device_ > 0) {
    kill(device_, SIGTERM);
    EXPECT_EQ(WaitFor(device_, 10s), 0);
  }
  if (!dir_.empty() && std::system(("rm -rf " + dir_).c_str()) != 0) ADD_FAILURE() << dir_;
}

void DirectVm::MakeInitramfs(const std::string& init, const std::string& tree) {
  const std::string make =
      fmt::format("TREE={} " SMOLVM_SOURCE_DIR
                  "/tests/vm/make_initramfs.sh {} {} {}/initramfs virtio_ring virtio virtio_mmio "
                  "virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci vsock "
                  "vmw_vsock_virtio_transport_common vmw_vsock_virtio_transport",
                  tree, kernel_.folder.string(), init, dir_);
  ASSERT_EQ(std::system(make.c_str()), 0);
}

std::vector<std::string> DirectVm::Qemu(int memory_mib) const {
  std::vector<std::string> argv = {machine::kQemuProgram};
  for (std::string& word : machine::AcceleratorOptions(host_)) argv.push_back(std::move(word));
  const std::vector<std::string> rest = {
      "-machine",
      "microvm,memory-backend=mem,acpi=on",
      "-object",
      fmt::format("memory-backend-memfd,id=mem,size={}M,share=on", memory_mib),
      "-m",
      std::to_string(memory_mib),
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
      kernel_.image,
      "-initrd",
      dir_ + "/initramfs",
      "-append",
      "console=ttyS0 quiet panic=-1 reboot=t mitigations=off" + machine::ClockWords(host_)};
  argv.insert(argv.end(), rest.begin(), rest.end());
  return argv;
}

}  // namespace smolvm::vsock_vm
