#include "tests/bench/remoting/helpers.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "tests/bench/measure.h"
#include "tests/bench/remoting/cuda.h"
#include "tests/bench/remoting/workloads.h"

namespace smolvm::bench {
namespace {

double FirstCall() {
  const double begin = Now();
  const Cuda cuda = OpenCuda(GUEST_LIBRARY);
  Begin(cuda);
  size_t free = 0, total = 0;
  Check(cuda.mem_get_info(&free, &total), "cuMemGetInfo");
  return Now() - begin;
}

// proc(5), smaps_rollup.
double ResidentMb() {
  std::ifstream file("/proc/self/smaps_rollup");
  std::string word;
  while (file >> word) {
    double kb = 0;
    if (word == "Rss:" && file >> kb) return kb / 1024;
  }
  Fail("no Rss in /proc/self/smaps_rollup");
}

double AddedMemory() {
  const double before = ResidentMb();
  FirstCall();
  return ResidentMb() - before;
}

double MemsetsOf(const char* library) {
  const Cuda cuda = OpenCuda(library);
  Begin(cuda);
  Memsets memsets(cuda);
  double best = memsets.Run();
  for (int i = 0; i < 20; ++i) best = std::min(best, memsets.Run());
  return best;
}

double Trip() {
  const Cuda cuda = OpenCuda(GUEST_LIBRARY);
  Begin(cuda);
  return MedianMs([&] {
    size_t free = 0, total = 0;
    Check(cuda.mem_get_info(&free, &total), "cuMemGetInfo");
  });
}

}  // namespace

int RunHelper(const std::string& name) {
  double number = 0;
  if (name == "first") {
    number = FirstCall();
  } else if (name == "memory") {
    number = AddedMemory();
  } else if (name == "memsets") {
    number = MemsetsOf(EMULATION_LIBRARY);
  } else if (name == "remote_memsets") {
    number = MemsetsOf(GUEST_LIBRARY);
  } else if (name == "trip") {
    number = Trip();
  } else if (name != "nothing") {
    Fail("no helper " + name);
  }
  fmt::print("{}\n", number);
  return 0;
}

HelperResult StartHelper(const std::string& name) {
  char self[] = "/proc/self/exe", option[] = "--helper";
  std::string argument = name;
  char* argv[] = {self, option, argument.data(), nullptr};
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) Fail("no pipe");
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
  pid_t pid = -1;
  const double begin = Now();
  const int error = posix_spawn(&pid, self, &files, nullptr, argv, environ);
  posix_spawn_file_actions_destroy(&files);
  close(ends[1]);
  if (error != 0) Fail("no helper process");
  char text[64] = {};
  const ssize_t got = read(ends[0], text, sizeof text - 1);
  close(ends[0]);
  int status = 0;
  waitpid(pid, &status, 0);
  const double wall = Now() - begin;
  if (got <= 0 || status != 0) Fail("the helper \"" + name + "\" has failed");
  return {atof(text), wall};
}

}  // namespace smolvm::bench
