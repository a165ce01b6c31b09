#include "tests/bench/vm/run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "tests/bench/measure.h"

namespace smolvm::bench {
namespace {

namespace fs = std::filesystem;

// Under emulation, on a busy machine, with the first fetch of a kernel and an image.
constexpr double kLimitMs = 900'000;
// Looking at memory costs the machine a little time, so it is done seldom.
constexpr int kLookMs = 100;

struct Child {
  pid_t pid = -1;
  int out = -1;
};

Child Start(const fs::path& state, const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {SMOLVM, "machine", "run"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) Fail("no pipe");
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, (state / "stderr").c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0600);
  Child child;
  child.out = ends[0];
  const int error = posix_spawn(&child.pid, SMOLVM, &files, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  close(ends[1]);
  if (error != 0) Fail("cannot start " SMOLVM);
  return child;
}

std::string Contents(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

void Fail(const std::string& what) {
  fmt::print(stderr, "bench_vm: {}\n", what);
  exit(1);
}

MachineRun RunMachine(const fs::path& state, const std::vector<std::string>& arguments,
                      bool watch_memory) {
  setenv("XDG_STATE_HOME", state.c_str(), 1);
  MachineRun run;
  const double begin = Now();
  const Child child = Start(state, arguments);
  for (;;) {
    if (Now() - begin > kLimitMs) {
      kill(child.pid, SIGTERM);
      Fail("a machine runs for more than 15 minutes");
    }
    if (watch_memory) {
      MemoryByProgram memory = MemoryOf(ProcessesOf(child.pid, state));
      if (TotalShare(memory) > TotalShare(run.memory)) run.memory = std::move(memory);
    }
    pollfd entry{child.out, POLLIN, 0};
    if (poll(&entry, 1, kLookMs) <= 0) continue;
    char bytes[4096];
    const ssize_t got = read(child.out, bytes, sizeof bytes);
    if (got <= 0) break;
    run.output.append(bytes, static_cast<size_t>(got));
    if (run.output.back() == '\n') run.last_line_ms = Now() - begin;
  }
  close(child.out);
  int status = 0;
  waitpid(child.pid, &status, 0);
  run.end_ms = Now() - begin;
  run.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (run.output.empty()) Fail("the machine said nothing: " + Contents(state / "stderr"));
  return run;
}

}  // namespace smolvm::bench
