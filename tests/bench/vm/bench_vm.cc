// What a machine with --cuda takes: time from its start to the probe's last line, and memory.
//
//   bench_vm [rounds]
//
// The floor is the same machine without --cuda, with the same folder mounted, started for one line
// of `echo`, in turns with it. Both may use all processors. Kernel and image are made ready before
// anything is timed. Each number is the median of the rounds; memory is looked at in a round of its
// own, since looking takes time. The exit status is 1 when a number beats its floor.
#include <fmt/format.h>
#include <stdlib.h>

#include <string>
#include <vector>

#include "tests/bench/measure.h"
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

std::string ProbeFolder(const Folder& folder) {
  return (folder.path / "probe").string() + ":/probe:ro";
}

MachineRun Echo(const Folder& folder, bool watch) {
  MachineRun run = RunMachine(folder.path,
                              {"--mem", kMemory, "--image", "debian", "--volume",
                               ProbeFolder(folder), "--", "/bin/echo", "here"},
                              watch);
  if (run.output != "here\n") Fail("the machine without --cuda printed: " + run.output);
  return run;
}

MachineRun Probe(const Folder& folder, bool watch) {
  MachineRun run =
      RunMachine(folder.path,
                 {"--cuda", "--mem", kMemory, "--image", "debian", "--volume", ProbeFolder(folder),
                  "--", "/probe/cuda-probe", "--elements", kElements},
                 watch);
  // A build without the kernel compiler refuses the last step; all before it must have worked.
  if (run.output.find("roundtrip all bytes match: True\nvector_add -> ") == std::string::npos)
    Fail("the probe printed: " + run.output);
  return run;
}

void AddTime(const char* what, const std::vector<Round>& rounds, Table& table) {
  const auto seconds = [](double ms) { return fmt::format("{:.2f} s", ms / 1e3); };
  const Compared compared = Summarize(rounds);
  table.Add({.what = what,
             .measured = seconds(compared.measured),
             .floor = seconds(compared.floor),
             .ratio = compared.cost},
            compared);
}

void AddMemory(const std::string& what, const Memory& measured, const Memory& floor, Table& table) {
  const auto text = [](const Memory& memory) {
    if (memory.resident == 0) return std::string("-");
    return fmt::format("{}/{} MB", (memory.share + 512) / 1024, (memory.resident + 512) / 1024);
  };
  const double ratio =
      floor.share == 0 ? 0 : static_cast<double>(measured.share) / static_cast<double>(floor.share);
  table.Add({.what = what, .measured = text(measured), .floor = text(floor), .ratio = ratio});
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
  std::vector<Round> last_lines, ends;
  for (int i = 0; i < rounds; ++i) {
    const MachineRun before = Echo(folder, false), probe = Probe(folder, false),
                     after = Echo(folder, false);
    last_lines.push_back({before.last_line_ms, probe.last_line_ms, after.last_line_ms});
    ends.push_back({before.end_ms, probe.end_ms, after.end_ms});
  }
  Table table;
  AddTime("start to the probe's last line (echo)", last_lines, table);
  AddTime("start to the launcher's end (echo)", ends, table);
  const MemoryByProgram without = Echo(folder, true).memory, with = Probe(folder, true).memory;
  AddMemory("memory at the peak, PSS/RSS", Total(with), Total(without), table);
  for (const auto& [name, memory] : with) {
    const auto same = without.find(name);
    AddMemory("  " + name, memory, same == without.end() ? Memory{} : same->second, table);
  }
  return table.Finish("bench_vm");
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
