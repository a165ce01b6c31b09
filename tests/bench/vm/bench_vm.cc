// What a machine with --cuda takes: time from its start to the probe's last line, and memory.
//
//   bench_vm [rounds]
//
// The floor is the same machine without --cuda, started for one line of `echo`, in turns with it.
// Kernel and image are made ready before anything is timed. Each number is the best of the rounds;
// memory is looked at in a round of its own, since looking takes time.
#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/bench/vm/run.h"

namespace smolvm::bench {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

constexpr char kMemory[] = "512";        // MiB of the machine
constexpr char kElements[] = "1048576";  // of the probe's vector add

struct Folder {
  Folder() {
    std::string name = (fs::temp_directory_path() / "smolvm-bench-vm-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) Fail("no temporary folder");
    path = name;
    fs::create_directories(path / "probe");
    fs::copy_file(CUDA_PROBE, path / "probe/cuda-probe");
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  fs::path path;
};

MachineRun Echo(const Folder& folder, bool watch) {
  MachineRun run = RunMachine(
      folder.path, {"--mem", kMemory, "--image", "debian", "--", "/bin/echo", "here"}, watch);
  if (run.output != "here\n") Fail("the machine without --cuda printed: " + run.output);
  return run;
}

MachineRun Probe(const Folder& folder, bool watch) {
  const std::string mount = (folder.path / "probe").string() + ":/probe:ro";
  MachineRun run = RunMachine(folder.path,
                              {"--cuda", "--mem", kMemory, "--image", "debian", "--volume", mount,
                               "--", "/probe/cuda-probe", "--elements", kElements},
                              watch);
  // A build without the kernel compiler refuses the last step; all before it must have worked.
  if (run.output.find("roundtrip all bytes match: True\nvector_add -> ") == std::string::npos)
    Fail("the probe printed: " + run.output);
  return run;
}

struct Times {
  double last_line_ms = 1e30, end_ms = 1e30;
  void Take(const MachineRun& run) {
    last_line_ms = std::min(last_line_ms, run.last_line_ms);
    end_ms = std::min(end_ms, run.end_ms);
  }
};

void PrintTime(const char* what, double measured, double floor) {
  fmt::print("{:<44} {:>14} {:>14} {:>7.2f}\n", what, fmt::format("{:.2f} s", measured / 1e3),
             fmt::format("{:.2f} s", floor / 1e3), measured / floor);
}

void PrintMemory(const std::string& what, const Memory& measured, const Memory& floor) {
  const auto text = [](const Memory& memory) {
    if (memory.resident == 0) return std::string("-");
    return fmt::format("{}/{} MB", (memory.share + 512) / 1024, (memory.resident + 512) / 1024);
  };
  const std::string ratio = floor.share == 0
                                ? "-"
                                : fmt::format("{:.2f}", static_cast<double>(measured.share) /
                                                            static_cast<double>(floor.share));
  fmt::print("{:<44} {:>14} {:>14} {:>7}\n", what, text(measured), text(floor), ratio);
}

Memory Total(const MemoryByProgram& programs) {
  Memory total;
  for (const auto& [name, memory] : programs) {
    total.resident += memory.resident;
    total.share += memory.share;
  }
  return total;
}

int Run(int rounds) {
  const Folder folder;
  Echo(folder, false);
  Times floor, measured;
  for (int i = 0; i < rounds; ++i) {
    floor.Take(Echo(folder, false));
    measured.Take(Probe(folder, false));
  }
  fmt::print("{:<44} {:>14} {:>14} {:>7}\n", "what", "measured", "floor", "ratio");
  PrintTime("start to the probe's last line (echo)", measured.last_line_ms, floor.last_line_ms);
  PrintTime("start to the launcher's end (echo)", measured.end_ms, floor.end_ms);
  const MemoryByProgram without = Echo(folder, true).memory, with = Probe(folder, true).memory;
  PrintMemory("memory at the peak, PSS/RSS", Total(with), Total(without));
  for (const auto& [name, memory] : with) {
    const auto same = without.find(name);
    PrintMemory("  " + name, memory, same == without.end() ? Memory{} : same->second);
  }
  return 0;
}

}  // namespace
}  // namespace smolvm::bench

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? atoi(argv[1]) : 3;
  if (argc > 2 || rounds < 1) {
    fmt::print(stderr, "usage: bench_vm [rounds]\n");
    return 2;
  }
  return smolvm::bench::Run(rounds);
}
