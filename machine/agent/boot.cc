#include "machine/agent/boot.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>

#include "machine/agent/mount.h"
#include "machine/agent/net.h"
#include "machine/util/failure.h"
#include "machine/util/files.h"

namespace smolvm::agent {
namespace {

using machine::ErrnoText;
using machine::Fail;
using machine::GuestConfig;

constexpr char kCudaFolder[] = "/opt/smolvm-cuda";
constexpr int kDiskWaitMs = 30000;

// The disk that QEMU was given with this serial number; the kernel's names depend on probing order.
std::string WaitForDisk(const std::string& serial) {
  for (int waited = 0; waited <= kDiskWaitMs; waited += 10) {
    for (char letter = 'a'; letter <= 'h'; ++letter) {
      const std::string name = std::string("vd") + letter;
      std::ifstream file("/sys/block/" + name + "/serial");
      std::string found;
      if (std::getline(file, found) && found == serial) return "/dev/" + name;
    }
    usleep(10000);
  }
  Fail("the disk '{}' did not appear", serial);
}

void MountImage(const GuestConfig& config) {
  Mount(WaitForDisk("image").c_str(), "/lower", "erofs", MS_RDONLY | MS_NODEV);
  if (config.persistent) {
    Mount(WaitForDisk("changes").c_str(), "/changes", "ext4", MS_NODEV);
  } else {
    Mount("tmpfs", "/changes", "tmpfs", MS_NODEV, "mode=755,size=75%");
  }
  MakePath("/changes/upper");
  MakePath("/changes/work");
  Mount("overlay", "/newroot", "overlay", 0,
        "lowerdir=/lower,upperdir=/changes/upper,workdir=/changes/work");
}

// What programs expect beside the image's files. All of it but /dev and /proc may be missing.
void MountSystem() {
  Mount("devtmpfs", "/dev", "devtmpfs", MS_NOSUID);
  Mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC);
  TryMount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "mode=620,ptmxmode=666,gid=5");
  TryMount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777");
  TryMount("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC);
  TryMount("cgroup2", "/sys/fs/cgroup", "cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC);
  TryMount("tmpfs", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755");
  std::error_code ignored;
  symlink("/proc/self/fd", "/dev/fd");
  symlink("/proc/self/fd/0", "/dev/stdin");
  symlink("/proc/self/fd/1", "/dev/stdout");
  symlink("/proc/self/fd/2", "/dev/stderr");
  mkdir("/tmp", 01777);
  chmod("/tmp", 01777);
}

void WriteText(const char* path, const std::string& text) {
  MakePath("/etc");
  std::ofstream(path) << text;
}

// Puts the CUDA library on the loader path of programs that clean their environment, where the
// image has a loader cache at all.
void RefreshLoaderCache() {
  constexpr char kConfig[] = "/etc/ld.so.conf.d/smolvm-cuda.conf";
  if (access("/sbin/ldconfig", X_OK) != 0 || access(kConfig, F_OK) == 0) return;
  MakePath("/etc/ld.so.conf.d");
  WriteText(kConfig, std::string(kCudaFolder) + "\n");
  const pid_t child = fork();
  if (child == 0) {
    execl("/sbin/ldconfig", "ldconfig", "-X", nullptr);
    _exit(1);
  }
  // LD_LIBRARY_PATH is set as well, so a machine whose cache cannot be made still works.
  if (child > 0) waitpid(child, nullptr, 0);
}

}  // namespace

void MountEarly() {
  Mount("devtmpfs", "/dev", "devtmpfs", MS_NOSUID);
  Mount("proc", "/proc", "proc", 0);
  Mount("sysfs", "/sys", "sysfs", 0);
  const int console = open("/dev/console", O_RDWR | O_NOCTTY);
  if (console >= 0) {
    for (int fd = 0; fd < 3; ++fd) dup2(console, fd);
    if (console > 2) close(console);
  }
}

GuestConfig ReadConfig() {
  try {
    return machine::DecodeConfig(machine::ReadFile("/smolvm/config"));
  } catch (const std::exception& error) {
    Fail("the machine's configuration cannot be read: {}", error.what());
  }
}

void LoadModules(const GuestConfig& config) {
  for (const std::string& name : config.modules) {
    const std::string path = "/smolvm/modules/" + name;
    UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file.valid()) Fail("cannot open the module {}: {}", name, ErrnoText());
    if (syscall(SYS_finit_module, file.get(), "", 0) != 0 && errno != EEXIST) {
      Fail("cannot load the module {}: {}", name, ErrnoText());
    }
  }
}

void EnterRoot(const GuestConfig& config) {
  MountImage(config);
  UniqueFd cuda;
  if (config.cuda) cuda = DetachCopy("/smolvm/cuda", true);
  umount2("/proc", MNT_DETACH);
  umount2("/sys", MNT_DETACH);
  if (chdir("/newroot") != 0 || mount(".", "/", nullptr, MS_MOVE, nullptr) != 0 ||
      chroot(".") != 0 || chdir("/") != 0) {
    Fail("cannot change to the image's root: {}", ErrnoText());
  }
  MountSystem();
  if (!config.cuda) return;
  Attach(cuda, kCudaFolder);
  // Made here so that programs of every user can write to it.
  const UniqueFd log(open(machine::kGuestCudaLog, O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
  fchmod(log.get(), 0666);
}

void PrepareSystem(const GuestConfig& config) {
  if (sethostname(config.hostname.data(), config.hostname.size()) != 0) {
    Fail("cannot set the host name: {}", ErrnoText());
  }
  WriteText("/etc/hostname", config.hostname + "\n");
  WriteText("/etc/hosts",
            "127.0.0.1\tlocalhost\n::1\tlocalhost\n127.0.1.1\t" + config.hostname + "\n");
  StartLoopback();
  if (config.net) {
    StartNetwork();
    unlink("/etc/resolv.conf");  // may be a link to a resolver that does not run here
    WriteText("/etc/resolv.conf", "nameserver 10.0.2.3\n");
  }
  if (config.cuda) RefreshLoaderCache();
}

}  // namespace smolvm::agent
