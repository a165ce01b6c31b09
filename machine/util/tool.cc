#include "machine/util/tool.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>

#include "machine/util/failure.h"
#include "machine/util/interrupt.h"
#include "machine/util/progress.h"
#include "protocol/base/child.h"
#include "protocol/base/unique_fd.h"

namespace smolvm::machine {
namespace {

constexpr size_t kMaxOutput = 1 << 20;
constexpr int kTickMs = 200;

// How tar, apt and mmdebstrap end after the line that says why.
bool SaysOnlyThatItFailed(const std::string& line) {
  for (const char* beginning :
       {"I: ", "E: mmdebstrap failed to run", "E: apt-get ", "E: apt download failed",
        "tar: Exiting with failure status", "tar: Skipping to next header",
        "tar: Child returned status", "tar: Error is not recoverable"}) {
    if (line.starts_with(beginning)) return true;
  }
  return false;
}

struct Pipe {
  Pipe() {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) Fail("no pipe can be made: {}", ErrnoText());
    read.reset(fds[0]);
    write.reset(fds[1]);
  }
  UniqueFd read, write;
};

std::string MustFind(const std::string& name) {
  std::string path = FindProgram(name);
  if (path.empty()) Fail("the program '{}' is missing; install it", name);
  return path;
}

pid_t MustStart(const std::vector<std::string>& argv, const ChildOptions& options) {
  const std::string path = MustFind(argv[0]);
  int error = 0;
  const pid_t pid = smolvm::StartChild(path, argv, options, &error);
  if (pid < 0) Fail("cannot run {}: {}", path, ErrnoText(error));
  return pid;
}

void AppendBounded(std::string* text, const char* data, size_t size) {
  text->append(data, size);
  if (text->size() > 2 * kMaxOutput) text->erase(0, text->size() - kMaxOutput);
}

// Reads both streams until they end; true when a signal interrupted us, or with a problem.
bool Collect(UniqueFd* out, UniqueFd* err, const ToolOptions& options, ToolResult* result,
             std::string* problem) {
  Progress progress(options.doing);
  auto next = std::chrono::steady_clock::now();
  char buffer[65536];
  while (out->valid() || err->valid()) {
    if (InterruptCount() > 0) return true;
    progress.Tick();
    if (options.problem && std::chrono::steady_clock::now() >= next) {
      *problem = options.problem();
      if (!problem->empty()) return true;
      next = std::chrono::steady_clock::now() + std::chrono::milliseconds(kTickMs);
    }
    pollfd fds[2] = {{out->get(), POLLIN, 0}, {err->get(), POLLIN, 0}};
    if (poll(fds, 2, kTickMs) <= 0) continue;
    for (int i = 0; i < 2; ++i) {
      if (fds[i].revents == 0) continue;
      UniqueFd* stream = i == 0 ? out : err;
      const ssize_t n = read(stream->get(), buffer, sizeof buffer);
      if (n > 0) {
        AppendBounded(i == 0 ? &result->out : &result->err, buffer, n);
      } else if (n == 0 || errno != EINTR) {
        stream->reset();
      }
    }
  }
  return false;
}

void EndGroup(pid_t pid) {
  kill(-pid, SIGTERM);
  for (int waited = 0; waited < 5000; waited += 50) {
    if (waitpid(pid, nullptr, WNOHANG) == pid) return;
    usleep(50000);
  }
  kill(-pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

}  // namespace

std::string FindProgram(const std::string& name) {
  if (name.find('/') != std::string::npos) return access(name.c_str(), X_OK) == 0 ? name : "";
  const char* path = std::getenv("PATH");
  std::string folders = path != nullptr ? path : "";
  folders += ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
  for (size_t begin = 0; begin < folders.size();) {
    const size_t end = std::min(folders.find(':', begin), folders.size());
    std::string candidate = folders.substr(begin, end - begin) + "/" + name;
    if (candidate[0] == '/' && access(candidate.c_str(), X_OK) == 0) return candidate;
    begin = end + 1;
  }
  return {};
}

std::string ToolResult::Reason() const {
  const std::string& text = err.empty() ? out : err;
  std::string last, reason;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    while (!line.empty() && (line.back() == ' ' || line.back() == '\r')) line.pop_back();
    if (line.empty()) continue;
    last = line;
    if (!SaysOnlyThatItFailed(line)) reason = std::move(line);
  }
  if (reason.empty()) reason = last;
  return reason.empty() ? fmt::format("status {}", status) : reason;
}

ToolResult RunTool(const std::vector<std::string>& argv, const ToolOptions& options) {
  CheckInterrupt();
  Pipe out, err;
  const pid_t pid = MustStart(argv, {.output = out.write.get(),
                                     .error = err.write.get(),
                                     .own_group = true,
                                     .death_signal = SIGTERM,
                                     .workdir = options.workdir,
                                     .env = options.env});
  out.write.reset();
  err.write.reset();
  ToolResult result;
  std::string problem;
  if (Collect(&out.read, &err.read, options, &result, &problem)) {
    EndGroup(pid);
    CheckInterrupt();
    Fail("{} was stopped: {}", options.doing, problem);
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  result.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return result;
}

ToolResult MustRun(const std::vector<std::string>& argv, const ToolOptions& options) {
  ToolResult result = RunTool(argv, options);
  if (result.status != 0) Fail("{} failed: {}", options.doing, result.Reason());
  return result;
}

pid_t StartChild(const std::vector<std::string>& argv, const std::string& output,
                 const std::string& workdir,
                 const std::vector<std::pair<std::string, std::string>>& env) {
  UniqueFd log;
  if (!output.empty()) {
    log.reset(open(output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    if (!log.valid()) Fail("cannot write {}: {}", output, ErrnoText());
  }
  const int to = log.valid() ? log.get() : ChildOptions::kInherit;
  return MustStart(
      argv, {.output = to, .error = to, .death_signal = SIGKILL, .workdir = workdir, .env = env});
}

}  // namespace smolvm::machine
