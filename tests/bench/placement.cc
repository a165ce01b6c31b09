#include "tests/bench/placement.h"

#include <sched.h>

#include <filesystem>
#include <fstream>

namespace smolvm::bench {
namespace {

namespace fs = std::filesystem;

std::vector<pid_t> ThreadsOf(pid_t pid) {
  std::vector<pid_t> threads;
  std::error_code gone;
  for (const auto& entry : fs::directory_iterator("/proc/" + std::to_string(pid) + "/task", gone)) {
    threads.push_back(std::stoi(entry.path().filename()));
  }
  return threads;
}

std::vector<pid_t> ChildrenOf(pid_t pid) {
  std::vector<pid_t> children;
  for (const pid_t thread : ThreadsOf(pid)) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/task/" + std::to_string(thread) +
                       "/children");
    for (pid_t child; file >> child;) children.push_back(child);
  }
  return children;
}

}  // namespace

std::vector<Placement> Placements() {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  std::vector<int> processors;
  if (sched_getaffinity(0, sizeof mine, &mine) == 0) {
    for (int i = 0; i < CPU_SETSIZE; ++i) {
      if (CPU_ISSET(i, &mine)) processors.push_back(i);
    }
  }
  std::vector<Placement> placements;
  if (!processors.empty()) placements.push_back({"same core", processors[0], processors[0]});
  if (processors.size() > 1) placements.push_back({"two cores", processors[0], processors[1]});
  return placements;
}

bool BindProcess(pid_t pid, const std::vector<int>& processors) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int processor : processors) CPU_SET(processor, &set);
  bool bound = false;
  // Twice: a thread that one not yet bound had started meanwhile.
  for (int pass = 0; pass < 2; ++pass) {
    for (const pid_t thread : ThreadsOf(pid))
      bound |= sched_setaffinity(thread, sizeof set, &set) == 0;
  }
  return bound;
}

bool BindTree(pid_t root, const std::vector<int>& processors) {
  // The parent first, so that a child which starts meanwhile is bound, or found below.
  if (!BindProcess(root, processors)) return false;
  for (const pid_t child : ChildrenOf(root)) BindTree(child, processors);
  return true;
}

}  // namespace smolvm::bench
