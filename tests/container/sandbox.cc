#include "tests/container/sandbox.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace smolvm::gpu {
namespace fs = std::filesystem;
namespace {

std::string MountOrWhy(const char* source, const std::string& target, const char* type,
                       unsigned long flags, const char* data = nullptr) {
  if (mount(source, target.c_str(), type, flags, data) == 0) return "";
  return "cannot mount " + target + ": " + std::strerror(errno);
}

std::string Missing() {
  if (geteuid() != 0) return "needs root";
  for (const char* program : {"podman", "runc", "conmon", "busybox", "tar", "timeout"}) {
    const Captured found = Shell(std::string("command -v ") + program);
    if (found.status != 0) return std::string(program) + " is not installed";
  }
  return "";
}

}  // namespace

Sandbox* Sandbox::Get(std::string& why) {
  static Sandbox sandbox;
  static const std::string problem = sandbox.SetUp();
  why = problem;
  return problem.empty() ? &sandbox : nullptr;
}

std::string Sandbox::SetUp() {
  if (std::string missing = Missing(); !missing.empty()) return missing;
  if (unshare(CLONE_NEWNS) != 0) return std::string("cannot unshare: ") + std::strerror(errno);
  std::string why = MountOrWhy("none", "/", nullptr, MS_REC | MS_PRIVATE);
  if (!why.empty()) return why;
  // An empty folder for all runs, covered by a tmpfs in this namespace only.
  folder_ = (fs::temp_directory_path() / "smolvm-container-test").string();
  fs::create_directories(folder_);
  why = MountOrWhy("tmpfs", folder_, "tmpfs", 0, "mode=755");
  for (auto step : {&Sandbox::MakeDev, &Sandbox::MakeEtc, &Sandbox::MakePodman}) {
    if (why.empty()) why = (this->*step)();
  }
  return why;
}

std::string Sandbox::MakeDev() {
  const std::string dev = host_root() + "/dev";
  fs::create_directories(dev);
  const struct {
    const char* name;
    unsigned minor;
  } kMemory[] = {{"null", 3}, {"zero", 5}, {"full", 7}, {"random", 8}, {"urandom", 9}};
  for (const auto& device : kMemory) MakeDevice(device.name, 1, device.minor);
  MakeDevice("tty", 5, 0);
  MakeDevice("fuse", 10, 229);
  for (const char* folder : {"pts", "shm", "mqueue", "dri/by-path"}) {
    fs::create_directories(dev + "/" + folder);
  }
  fs::create_symlink("/proc/self/fd", dev + "/fd");
  fs::create_symlink("pts/ptmx", dev + "/ptmx");
  if (!fs::exists(dev + "/null")) return "cannot make device nodes";
  std::string why = MountOrWhy("/dev/pts", dev + "/pts", nullptr, MS_BIND);
  if (why.empty()) why = MountOrWhy("tmpfs", dev + "/shm", "tmpfs", 0, "mode=1777");
  if (why.empty()) why = MountOrWhy(dev.c_str(), "/dev", nullptr, MS_BIND | MS_REC);
  return why;
}

std::string Sandbox::MakeEtc() {
  for (const char* layer : {"/etc-upper/cdi", "/etc-work"}) fs::create_directories(folder_ + layer);
  const std::string layers =
      "lowerdir=/etc,upperdir=" + folder_ + "/etc-upper,workdir=" + folder_ + "/etc-work";
  umount2("/sys/fs/cgroup/unified", MNT_DETACH);  // only there on hybrid hosts
  return MountOrWhy("overlay", "/etc", "overlay", 0, layers.c_str());
}

std::string Sandbox::MakePodman() {
  for (const char* runtime : {"runc", "crun"}) {
    Write(podman(runtime), "#!/bin/sh\nexec podman --root " + folder_ + "/storage --runroot " +
                               folder_ + "/run --tmpdir " + folder_ + "/tmp --runtime " + runtime +
                               " --storage-driver overlay --cgroup-manager cgroupfs "
                               "--events-backend file \"$@\"\n");
    fs::permissions(podman(runtime), fs::perms::owner_all);
  }
  fs::create_directories(folder_ + "/tree/bin");
  for (const char* folder : {"dev", "proc", "sys", "tmp", "etc", "run", "opt"}) {
    fs::create_directories(folder_ + "/tree/" + folder);
  }
  const Captured copied =
      Shell("cp \"$(command -v busybox)\" " + folder_ + "/tree/bin/busybox && cd " + folder_ +
            "/tree/bin && for name in sh ls echo find env id mount stat grep cat "
            "sort touch sleep; do ln -s busybox $name; done");
  if (copied.status != 0) return "cannot make the image: " + copied.err;
  const Captured made = Import(folder_ + "/tree", Image());
  if (made.status != 0) return "cannot import the image: " + made.err;
  const Captured ran = Shell(podman() + " run " + RunOptions() + " " + Image() + " echo it runs");
  return ran.out == "it runs\n" ? "" : "podman cannot run a container here: " + ran.err;
}

Captured Sandbox::Import(const std::string& tree, const std::string& name) const {
  return Shell("tar -C " + tree + " -cf " + tree + ".tar . && " + podman() + " import -q " + tree +
               ".tar " + name + " && rm " + tree + ".tar");
}

std::string Sandbox::RunOptions() {
  // Raising limits may not be permitted, so none is raised.
  return "--rm --network none --ulimit nofile=1024:1024 --ulimit nproc=1000:1000";
}

void Sandbox::Write(const std::string& path, const std::string& text) const {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path) << text;
}

void Sandbox::MakeDevice(const std::string& path, unsigned major, unsigned minor) const {
  const std::string node = host_root() + "/dev/" + path;
  fs::create_directories(fs::path(node).parent_path());
  mknod(node.c_str(), S_IFCHR | 0666, makedev(major, minor));
  chmod(node.c_str(), 0666);
}

void Sandbox::RenderNode(int number, const std::string& address,
                         const std::string& vendor_id) const {
  const std::string name = "renderD" + std::to_string(number);
  const std::string device = host_root() + "/sys/devices/" + address;
  Write(device + "/vendor", vendor_id + "\n");
  fs::create_directories(device + "/drm/" + name);
  fs::create_symlink("../../../" + address, device + "/drm/" + name + "/device");
  fs::create_directories(host_root() + "/sys/class/drm");
  fs::create_symlink("../../devices/" + address + "/drm/" + name,
                     host_root() + "/sys/class/drm/" + name);
  MakeDevice("dri/" + name, 226, static_cast<unsigned>(number));
  fs::create_symlink("../" + name, host_root() + "/dev/dri/by-path/pci-" + address + "-render");
}

}  // namespace smolvm::gpu
