// How long `smolvm gpu run-args all` takes without podman's own time, on a made-up host with CDI
// specs for eight NVIDIA cards in YAML (the slow format), AMD and Intel cards without, and
// unrelated specs. Prints key=value lines; the aim is best_ms ≤ 20.
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

void Write(const fs::path& file, const std::string& text) {
  fs::create_directories(file.parent_path());
  std::ofstream(file) << text;
}

// About what nvidia-ctk writes for one card.
std::string Device(const std::string& name, int card) {
  std::string text = "- containerEdits:\n    deviceNodes:\n    - path: /dev/nvidia" +
                     std::to_string(card) + "\n    hooks:\n";
  for (int i = 0; i < 4; ++i) {
    text +=
        "    - args: [nvidia-ctk, hook, create-symlinks, --link, "
        "../card" +
        std::to_string(card) + "::/dev/dri/by-path/pci-0000:0" + std::to_string(i) +
        ":00.0-card]\n      hookName: createContainer\n"
        "      path: /usr/bin/nvidia-ctk\n";
  }
  return text + "  name: \"" + name + "\"\n";
}

std::string NvidiaSpec() {
  std::string text = "---\ncdiVersion: 0.5.0\ncontainerEdits:\n  mounts:\n";
  for (int i = 0; i < 60; ++i) {
    const std::string library = "/usr/lib/x86_64-linux-gnu/libnvidia-" + std::to_string(i) + ".so";
    text += "  - containerPath: " + library + "\n    hostPath: " + library +
            "\n    options: [ro, nosuid, nodev, bind]\n";
  }
  text += "devices:\n";
  for (int i = 0; i < 8; ++i) text += Device(std::to_string(i), i);
  return text + Device("all", 0) + "kind: nvidia.com/gpu\n";
}

void MakeHost(const fs::path& root) {
  Write(root / "etc/cdi/nvidia.yaml", NvidiaSpec());
  for (int i = 0; i < 20; ++i) {
    Write(root / ("etc/cdi/nic" + std::to_string(i) + ".json"),
          R"({"cdiVersion": "0.5.0", "kind": "nic.example/port", "devices": [{"name": "0"}]})");
  }
  Write(root / "dev/kfd", "");
  for (int i = 0; i < 8; ++i) {
    const std::string name = "renderD" + std::to_string(128 + i);
    const fs::path device = root / "sys/devices" / ("0000:" + std::to_string(i) + "3:00.0");
    Write(device / "vendor", i < 4 ? "0x1002\n" : "0x8086\n");
    Write(root / "dev/dri" / name, "");
    fs::create_directories(root / "sys/class/drm" / name);
    fs::create_symlink("../../../devices/" + device.filename().string(),
                       root / "sys/class/drm" / name / "device");
  }
}

// Wall and processor time of one run; on a busy machine only the latter says much.
struct Took {
  double wall_ms;
  double cpu_ms;
};

Took Run(std::vector<std::string> argv) {
  std::vector<char*> words;
  for (std::string& word : argv) words.push_back(word.data());
  words.push_back(nullptr);
  const auto start = Clock::now();
  const pid_t child = fork();
  if (child == 0) {
    if (std::freopen("/dev/null", "w", stdout) == nullptr) _exit(126);
    execv(words[0], words.data());
    _exit(127);
  }
  int status = 0;
  rusage usage = {};
  wait4(child, &status, 0, &usage);
  const double ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  if (status != 0) {
    std::fprintf(stderr, "%s failed with status %d\n", argv[0].c_str(), status);
    std::exit(1);
  }
  const auto used = [](const timeval& t) { return 1e3 * t.tv_sec + 1e-3 * t.tv_usec; };
  return {ms, used(usage.ru_utime) + used(usage.ru_stime)};
}

double Best(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}

}  // namespace

int main() {
  std::string folder = (fs::temp_directory_path() / "container-bench-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return 1;
  MakeHost(folder);
  const std::vector<std::string> run_args = {
      SMOLVM_PROGRAM, "gpu",  "run-args", "all",
      "--root",       folder, "--podman", "/nonexistent/podman"};
  std::vector<double> wall, cpu, floor_wall, floor_cpu;
  for (int i = 0; i < 50; ++i) {
    // In turns, so that whatever else the machine does hits both alike.
    const Took took = Run(run_args);
    wall.push_back(took.wall_ms);
    cpu.push_back(took.cpu_ms);
    const Took floor = Run({"/bin/true"});
    floor_wall.push_back(floor.wall_ms);
    floor_cpu.push_back(floor.cpu_ms);
  }
  std::printf("gpu_run_args.best_ms=%.2f (aim: 20)\n", Best(wall));
  std::printf("gpu_run_args.floor_ms=%.2f (/bin/true in the same run)\n", Best(floor_wall));
  std::printf("gpu_run_args.best_cpu_ms=%.2f\n", Best(cpu));
  std::printf("gpu_run_args.floor_cpu_ms=%.2f\n", Best(floor_cpu));
  fs::remove_all(folder);
  return 0;
}
