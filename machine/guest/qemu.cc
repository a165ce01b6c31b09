#include "machine/guest/qemu.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cstdio>
#include <fstream>

#include "machine/guest/trial.h"
#include "protocol/base/unique_fd.h"

namespace smolvm::machine {
namespace {

// QEMU's option values end at a comma unless it is doubled.
std::string Value(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == ',' ? ",," : std::string(1, c);
  return out;
}

#if defined(__aarch64__)
constexpr char kMachineType[] = "virt";
#else
constexpr char kMachineType[] = "microvm,acpi=on,rtc=on";
#endif
constexpr char kKernelWords[] =
    "console=ttyS0 panic=-1 reboot=t mitigations=off rcupdate.rcu_expedited=1";

uint32_t HostTscKhz() {
  std::ifstream info("/proc/cpuinfo");
  std::string line;
  while (std::getline(info, line)) {
    double mhz = 0;
    if (std::sscanf(line.c_str(), "cpu MHz : %lf", &mhz) == 1) {
      return static_cast<uint32_t>(mhz * 1000);
    }
  }
  return 0;
}

// Processor, memory, kernel and console: what a machine consists of before it has devices.
std::vector<std::string> BareMachine(const std::string& type, const HostAbilities& host) {
  std::vector<std::string> argv = {kQemuProgram,      "-M",       type,   "-nodefaults",
                                   "-no-user-config", "-display", "none", "-no-reboot"};
  const std::vector<std::string> accelerator = AcceleratorOptions(host);
  argv.insert(argv.end(), accelerator.begin(), accelerator.end());
  return argv;
}

void AddKernel(std::vector<std::string>* argv, const std::string& kernel,
               const std::string& initramfs, const std::string& words,
               const std::string& console_log) {
  argv->insert(argv->end(),
               {"-kernel", kernel, "-initrd", initramfs, "-append", words, "-chardev",
                "file,id=console,path=" + Value(console_log), "-serial", "chardev:console"});
}

bool CanOpen(const char* path) { return UniqueFd(open(path, O_RDWR | O_CLOEXEC)).valid(); }

// werror: by default QEMU stops a machine whose host has no space left, and nobody is told.
void AddDisk(std::vector<std::string>* argv, const std::string& id, const std::string& file,
             bool read_only) {
  argv->insert(argv->end(), {"-drive",
                             fmt::format("id={},file={},format=raw,if=none,cache=writeback,{}", id,
                                         Value(file), read_only ? "readonly=on" : "discard=unmap"),
                             "-device",
                             fmt::format("virtio-blk-device,drive={0},serial={0},"
                                         "werror=report,rerror=report",
                                         id)});
}

}  // namespace

HostAbilities AskHost() {
  HostAbilities host;
  if (CanOpen("/dev/vhost-vsock")) host.vsock = VsockKind::kKernel;
  host.tsc_khz = HostTscKhz();
  return host;
}

std::vector<std::string> AcceleratorOptions(const HostAbilities& host) {
  const bool kvm = host.accelerator == Accelerator::kKvm;
  return {"-accel", kvm ? "kvm" : "tcg,thread=multi", "-cpu", host.cpu};
}

std::string ClockWords(const HostAbilities& host) {
  // Without it a microvm under TCG hangs while it calibrates its clock.
  if (host.accelerator != Accelerator::kTcg || host.tsc_khz == 0) return {};
  return fmt::format(" tsc_early_khz={} tsc=reliable", host.tsc_khz);
}

std::vector<std::string> TrialCommand(const std::string& kernel, const std::string& initramfs,
                                      const std::string& console_log, const std::string& cpu) {
  HostAbilities host;
  host.accelerator = Accelerator::kKvm;
  host.cpu = cpu;
  std::vector<std::string> argv = BareMachine(kMachineType, host);
  argv.insert(argv.end(), {"-name", "guest=smolvm-trial", "-smp", "2", "-m", "256M"});
  // The kernel's first lines are the first sign of life, so they must not wait for a driver.
  AddKernel(&argv, kernel, initramfs,
            std::string(kKernelWords) + " earlyprintk=serial,ttyS0 -- " + kTrialArgument,
            console_log);
  return argv;
}

std::vector<std::string> QemuCommand(const QemuOptions& options) {
  std::vector<std::string> argv =
      BareMachine(std::string(kMachineType) + ",memory-backend=mem", options.host);
  argv.insert(argv.end(),
              {"-name", "guest=" + Value(options.name), "-smp", std::to_string(options.cpus), "-m",
               fmt::format("{}M", options.memory_mib), "-object",
               fmt::format("memory-backend-memfd,id=mem,size={}M,share=on", options.memory_mib)});
  AddKernel(&argv, options.kernel, options.initramfs,
            std::string(kKernelWords) + " quiet" + ClockWords(options.host), options.console_log);
  argv.insert(argv.end(), {"-qmp", "unix:" + Value(options.qmp_socket) + ",server=on,wait=off"});
  // The agent finds its disks by their serial numbers.
  AddDisk(&argv, "image", options.image_disk, true);
  if (!options.changes_disk.empty()) AddDisk(&argv, "changes", options.changes_disk, false);
  if (options.host.vsock == VsockKind::kKernel) {
    argv.insert(argv.end(),
                {"-device", fmt::format("vhost-vsock-device,guest-cid={}", options.cid)});
  } else {
    argv.insert(argv.end(), {"-chardev", "socket,id=vsock,path=" + Value(options.vsock_socket),
                             "-device", "vhost-user-vsock-device,chardev=vsock"});
  }
  if (options.net) {
    argv.insert(argv.end(), {"-netdev", "user,id=net", "-device", "virtio-net-device,netdev=net"});
  }
  return argv;
}

}  // namespace smolvm::machine
