#include "machine/guest/qemu.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cstdio>
#include <fstream>

#include "machine/util/unique_fd.h"

namespace smolvm::machine {
namespace {

// QEMU's option values end at a comma unless it is doubled.
std::string Value(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == ',' ? ",," : std::string(1, c);
  return out;
}

std::string KernelWords(const QemuOptions& options) {
  std::string words =
      "console=ttyS0 quiet panic=-1 reboot=t mitigations=off rcupdate.rcu_expedited=1";
  // Without it a microvm under TCG hangs while it calibrates its clock.
  if (options.host.accelerator == Accelerator::kTcg && options.host.tsc_khz != 0) {
    words += fmt::format(" tsc_early_khz={} tsc=reliable", options.host.tsc_khz);
  }
  return words;
}

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
  if (CanOpen("/dev/kvm")) host.accelerator = Accelerator::kKvm;
  if (CanOpen("/dev/vhost-vsock")) host.vsock = VsockKind::kKernel;
  host.tsc_khz = HostTscKhz();
  return host;
}

std::vector<std::string> QemuCommand(const QemuOptions& options) {
#if defined(__aarch64__)
  std::vector<std::string> argv = {"qemu-system-aarch64", "-M", "virt,memory-backend=mem"};
#else
  std::vector<std::string> argv = {"qemu-system-x86_64", "-M",
                                   "microvm,acpi=on,rtc=on,memory-backend=mem"};
#endif
  const bool kvm = options.host.accelerator == Accelerator::kKvm;
  argv.insert(argv.end(), {"-name", "guest=" + Value(options.name), "-nodefaults",
                           "-no-user-config", "-display", "none", "-no-reboot", "-accel",
                           kvm ? "kvm" : "tcg,thread=multi", "-cpu", kvm ? "host" : "max"});
  argv.insert(argv.end(),
              {"-smp", std::to_string(options.cpus), "-m", fmt::format("{}M", options.memory_mib),
               "-object",
               fmt::format("memory-backend-memfd,id=mem,size={}M,share=on", options.memory_mib)});
  argv.insert(argv.end(), {"-kernel", options.kernel, "-initrd", options.initramfs, "-append",
                           KernelWords(options)});
  argv.insert(argv.end(), {"-chardev", "file,id=console,path=" + Value(options.console_log),
                           "-serial", "chardev:console"});
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
