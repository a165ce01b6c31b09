#include "tests/bench/vm/memory.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

namespace smolvm::bench {
namespace {

namespace fs = std::filesystem;

fs::path Proc(pid_t pid) { return fs::path("/proc") / std::to_string(pid); }

// proc(5), stat: the parent is the second field behind the parenthesised name.
pid_t ParentOf(pid_t pid) {
  std::ifstream file(Proc(pid) / "stat");
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(") ");
  return name_end == std::string::npos || name_end + 4 > text.size()
             ? 0
             : std::atoi(text.c_str() + name_end + 4);
}

std::string ProgramOf(pid_t pid) {
  std::ifstream file(Proc(pid) / "cmdline");
  std::string name;
  std::getline(file, name, '\0');
  return fs::path(name).filename();
}

bool WorksIn(pid_t pid, const std::string& folder) {
  std::error_code error;
  const std::string cwd = fs::read_symlink(Proc(pid) / "cwd", error);
  return !error && cwd.rfind(folder, 0) == 0;
}

Memory MemoryOf(pid_t pid) {
  Memory memory;
  std::ifstream status(Proc(pid) / "status");
  for (std::string word; status >> word;) {
    if (word == "VmRSS:") status >> memory.resident;
  }
  std::ifstream rollup(Proc(pid) / "smaps_rollup");
  for (std::string word; rollup >> word;) {
    if (word == "Pss:") rollup >> memory.share;
  }
  if (memory.share == 0) memory.share = memory.resident;
  return memory;
}

}  // namespace

std::vector<pid_t> ProcessesOf(pid_t root, const std::string& folder) {
  std::map<pid_t, pid_t> parents;
  std::set<pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    if (pid <= 0) continue;
    parents[pid] = ParentOf(pid);
    if (pid == root || WorksIn(pid, folder)) found.insert(pid);
  }
  for (bool grows = true; grows;) {
    grows = false;
    for (const auto& [pid, parent] : parents) {
      grows |= found.contains(parent) && found.insert(pid).second;
    }
  }
  return {found.begin(), found.end()};
}

MemoryByProgram MemoryOf(const std::vector<pid_t>& processes) {
  MemoryByProgram programs;
  for (const pid_t pid : processes) {
    const std::string name = ProgramOf(pid);
    const Memory memory = MemoryOf(pid);
    if (name.empty() || memory.resident == 0) continue;  // ended meanwhile
    programs[name].resident += memory.resident;
    programs[name].share += memory.share;
  }
  return programs;
}

uint64_t TotalShare(const MemoryByProgram& programs) {
  uint64_t total = 0;
  for (const auto& [name, memory] : programs) total += memory.share;
  return total;
}

}  // namespace smolvm::bench
