#include "tests/unit/container/fixture.h"

#include <cstdlib>
#include <fstream>

namespace smolvm::gpu {
namespace fs = std::filesystem;

FixtureHost::FixtureHost() {
  std::string name = (fs::temp_directory_path() / "container-test-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
  folder_ = name;
  fs::create_directory(folder_ / "root");
  podman_.program = (folder_ / "no-podman").string();
  for (const char* variable :
       {"CONTAINERS_CONF", "CONTAINERS_CONF_OVERRIDE", "SMOLVM_PODMAN", "SMOLVM_CUDA_SOCKET",
        "SMOLVM_CUDA_LIBRARIES", "SMOLVM_CUDA_ENDPOINT", "XDG_RUNTIME_DIR"}) {
    unsetenv(variable);
  }
}

FixtureHost::~FixtureHost() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

std::string FixtureHost::Real(std::string_view path) const {
  return (folder_ / "root" / path.substr(1)).string();
}

void FixtureHost::Write(std::string_view path, std::string_view text) {
  const fs::path file = Real(path);
  fs::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << text;
  ASSERT_TRUE(fs::exists(file)) << file;
}

void FixtureHost::Directory(std::string_view path) { fs::create_directories(Real(path)); }

void FixtureHost::Link(std::string_view path, std::string_view target) {
  const fs::path file = Real(path);
  fs::create_directories(file.parent_path());
  fs::create_symlink(target, file);
}

void FixtureHost::NvidiaCard(std::string_view address, int minor) {
  const std::string folder = "/proc/driver/nvidia/gpus/" + std::string(address);
  Directory(folder);
  if (minor < 0) return;
  Write(folder + "/information", "Model: \t\t NVIDIA H200\nIRQ:   \t\t 88\nBus Location: \t " +
                                     std::string(address) + "\nDevice Minor: \t " +
                                     std::to_string(minor) + "\nGPU Excluded:\t No\n");
}

void FixtureHost::NvidiaNodes(const std::vector<int>& minors) {
  Node("/dev/nvidiactl");
  Node("/dev/nvidia-uvm");
  for (int minor : minors) Node("/dev/nvidia" + std::to_string(minor));
}

void FixtureHost::RenderNode(std::string_view name, std::string_view address,
                             std::string_view vendor_id, ByPath by_path) {
  const std::string device = "/sys/devices/pci0000:00/" + std::string(address);
  Write(device + "/vendor", std::string(vendor_id) + "\n");
  Directory(device + "/drm/" + std::string(name));
  Link(device + "/drm/" + std::string(name) + "/device", "../../../" + std::string(address));
  Link("/sys/class/drm/" + std::string(name),
       "../../devices/pci0000:00/" + std::string(address) + "/drm/" + std::string(name));
  Node("/dev/dri/" + std::string(name));
  if (by_path == ByPath::kPresent) {
    Link("/dev/dri/by-path/pci-" + std::string(address) + "-render", "../" + std::string(name));
  }
}

void FixtureHost::CdiJson(std::string_view file, std::string_view kind,
                          const std::vector<std::string>& devices) {
  std::string text =
      R"({"cdiVersion": "0.5.0", "kind": ")" + std::string(kind) + R"(", "devices": [)";
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (i > 0) text += ", ";
    text += R"({"name": ")" + devices[i] + R"(", "containerEdits": {}})";
  }
  Write("/etc/cdi/" + std::string(file), text + "]}");
}

void FixtureHost::PodmanScript(std::string_view body) {
  podman_.program = (folder_ / "podman").string();
  std::ofstream(podman_.program) << "#!/bin/sh\n" << body;
  fs::permissions(podman_.program, fs::perms::owner_all);
}

Host FixtureHost::host() {
  Host host;
  host.root = HostRoot((folder_ / "root").string());
  host.podman = podman_;
  host.warn = [this](std::string_view line) { warnings.emplace_back(line); };
  return host;
}

std::vector<std::string> ArgsOf(FixtureHost& host, std::string_view selector) {
  return gpu_run_args(normalize_gpus(selector), host.host());
}

std::string ErrorOf(FixtureHost& host, std::string_view selector) {
  try {
    const Words args = ArgsOf(host, selector);
    ADD_FAILURE() << "'" << selector << "' gave " << args.size() << " arguments";
    return "";
  } catch (const GpuConfigError& error) {
    return std::string(error.what()) + "\n" + error.hint();
  }
}

}  // namespace smolvm::gpu
