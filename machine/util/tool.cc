#include "machine/util/tool.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "machine/util/failure.h"
#include "machine/util/interrupt.h"
#include "machine/util/progress.h"
#include "machine/util/unique_fd.h"

namespace smolvm::machine {
namespace {

constexpr size_t kMaxOutput = 1 << 20;
constexpr int kTickMs = 200;

using Environment = std::vector<std::pair<std::string, std::string>>;

// In the child of a fork: never returns. PR_SET_PDEATHSIG is lost when we were too late, so the
// parent is looked at once more.
[[noreturn]] void Become(const std::vector<std::string>& argv, const std::string& path,
                         const std::string& workdir, const Environment& env, int death_signal,
                         pid_t parent, int report) {
  prctl(PR_SET_PDEATHSIG, death_signal);
  if (getppid() != parent) _exit(125);
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) sigaction(signal, &action, nullptr);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const auto& [key, value] : env) setenv(key.c_str(), value.c_str(), 1);
  std::vector<char*> pointers;
  pointers.reserve(argv.size() + 1);
  for (const std::string& item : argv) pointers.push_back(const_cast<char*>(item.c_str()));
  pointers.push_back(nullptr);
  if (workdir.empty() || chdir(workdir.c_str()) == 0) execv(path.c_str(), pointers.data());
  const int error = errno;
  if (write(report, &error, sizeof error) < 0) _exit(124);
  _exit(125);
}

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

void ThrowIfNotStarted(const std::string& path, Pipe* report, pid_t pid) {
  report->write.reset();
  int error = 0;
  if (read(report->read.get(), &error, sizeof error) != sizeof error) return;
  waitpid(pid, nullptr, 0);
  Fail("cannot run {}: {}", path, ErrnoText(error));
}

void AppendBounded(std::string* text, const char* data, size_t size) {
  text->append(data, size);
  if (text->size() > 2 * kMaxOutput) text->erase(0, text->size() - kMaxOutput);
}

// Reads both streams until they end; true when a signal interrupted us.
bool Collect(UniqueFd* out, UniqueFd* err, ToolResult* result, Progress* progress) {
  char buffer[65536];
  while (out->valid() || err->valid()) {
    if (InterruptCount() > 0) return true;
    progress->Tick();
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
  const std::string path = MustFind(argv[0]);
  Pipe out, err, report;
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) Fail("cannot start {}: {}", argv[0], ErrnoText());
  if (pid == 0) {
    setpgid(0, 0);
    const UniqueFd null(open("/dev/null", O_RDONLY));
    dup2(null.get(), 0);
    dup2(out.write.get(), 1);
    dup2(err.write.get(), 2);
    Become(argv, path, options.workdir, options.env, SIGTERM, parent, report.write.get());
  }
  setpgid(pid, pid);
  out.write.reset();
  err.write.reset();
  ThrowIfNotStarted(path, &report, pid);
  ToolResult result;
  Progress progress(options.doing);
  if (Collect(&out.read, &err.read, &result, &progress)) {
    EndGroup(pid);
    CheckInterrupt();
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
                 const std::string& workdir, const Environment& env) {
  const std::string path = MustFind(argv[0]);
  Pipe report;
  UniqueFd log;
  if (!output.empty()) {
    log.reset(open(output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    if (!log.valid()) Fail("cannot write {}: {}", output, ErrnoText());
  }
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) Fail("cannot start {}: {}", argv[0], ErrnoText());
  if (pid == 0) {
    const UniqueFd null(open("/dev/null", O_RDONLY));
    dup2(null.get(), 0);
    if (log.valid()) {
      dup2(log.get(), 1);
      dup2(log.get(), 2);
    }
    Become(argv, path, workdir, env, SIGKILL, parent, report.write.get());
  }
  ThrowIfNotStarted(path, &report, pid);
  return pid;
}

}  // namespace smolvm::machine
