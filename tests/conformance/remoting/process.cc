#include "tests/conformance/remoting/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace smolvm::remoting {
namespace {

void CloseOnce(int* fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

[[noreturn]] void Become(const std::vector<std::string>& arguments,
                         const std::vector<std::string>& environment, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  for (const std::string& entry : environment) {
    const size_t at = entry.find('=');
    if (at == std::string::npos) {
      unsetenv(entry.c_str());
    } else {
      setenv(entry.substr(0, at).c_str(), entry.c_str() + at + 1, 1);
    }
  }
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  fprintf(stderr, "%s: %s\n", argv[0], strerror(errno));
  _exit(127);
}

}  // namespace

double Now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec + now.tv_nsec * 1e-9;
}

Folder::Folder() {
  char path[] = "/tmp/smolvm-remoting-XXXXXX";
  if (!mkdtemp(path)) throw std::runtime_error("no temporary folder");
  path_ = path;
}

Folder::~Folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string Contents(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

Process::Process(const std::vector<std::string>& arguments,
                 const std::vector<std::string>& environment) {
  int input[2], output[2];
  if (pipe2(input, O_CLOEXEC) != 0 || pipe2(output, O_CLOEXEC) != 0)
    throw std::runtime_error("no pipe");
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) {
    dup2(input[0], STDIN_FILENO);
    dup2(output[1], STDOUT_FILENO);
    dup2(output[1], STDERR_FILENO);
    Become(arguments, environment, parent);
  }
  close(input[0]);
  close(output[1]);
  input_ = input[1];
  from_ = output[0];
}

Process::~Process() {
  if (!ended_) {
    Kill(SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  CloseInput();
  CloseOnce(&from_);
}

void Process::CloseInput() { CloseOnce(&input_); }

void Process::Kill(int signal) {
  if (!ended_ && pid_ > 0) kill(pid_, signal);
}

bool Process::ReadMore(double seconds) {
  pollfd ready{from_, POLLIN, 0};
  if (from_ < 0 || poll(&ready, 1, static_cast<int>(seconds * 1000) + 1) <= 0) return false;
  char text[4096];
  const ssize_t got = read(from_, text, sizeof text);
  if (got <= 0) {
    CloseOnce(&from_);
    return false;
  }
  output_.append(text, got);
  return true;
}

bool Process::Await(const std::string& text, double seconds) {
  const double end = Now() + seconds;
  while (output_.find(text) == std::string::npos) {
    if (Now() >= end || !ReadMore(end - Now())) return output_.find(text) != std::string::npos;
  }
  return true;
}

int Process::Wait(double seconds) {
  const double end = Now() + seconds;
  while (!ended_) {
    // A descendant may keep the pipe open, so the end of the output is not the end of the process.
    ReadMore(0.01);
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      ended_ = true;
      status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      while (ReadMore(0)) {
      }
    } else if (Now() >= end) {
      return -1;
    } else if (from_ < 0) {
      usleep(5000);
    }
  }
  return status_;
}

Daemon::Daemon(const std::vector<std::string>& options)
    : socket_(folder_ / "cuda.sock"), log_(folder_ / "daemon.log") {
  // By the shell, so that its log goes to a file that nobody has to read for it to go on.
  std::vector<std::string> arguments = {"/bin/sh",
                                        "-c",
                                        "exec \"$@\" 2>>\"$LOG\"",
                                        "sh",
                                        SMOLVM_DAEMON,
                                        "--listen",
                                        "unix:" + socket_,
                                        "--backend",
                                        "emulation",
                                        "--log-level",
                                        "debug"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  process_ = std::make_unique<Process>(arguments, std::vector<std::string>{"LOG=" + log_});
  const double end = Now() + 30;
  while (log().find("event=ready") == std::string::npos) {
    if (Now() > end) throw std::runtime_error("the daemon is not ready: " + log());
    usleep(5000);
  }
}

Daemon::~Daemon() {
  process_->Kill(SIGTERM);
  EXPECT_EQ(process_->Wait(20), 0) << log();
}

std::vector<pid_t> Daemon::Workers() const {
  std::ifstream children("/proc/" + std::to_string(process_->pid()) + "/task/" +
                         std::to_string(process_->pid()) + "/children");
  return {std::istream_iterator<pid_t>(children), {}};
}

int Daemon::ReadyWorkers() const {
  const std::string text = log();
  int count = 0;
  for (size_t at = 0; (at = text.find("event=worker_ready", at)) != std::string::npos; ++at)
    ++count;
  return count;
}

pid_t Daemon::LastWorker() const {
  const std::string text = log();
  const size_t session = text.rfind("event=session_started");
  if (session == std::string::npos) return -1;
  const size_t at = text.find(" worker=", session);
  return at == std::string::npos ? -1 : atoi(text.c_str() + at + strlen(" worker="));
}

size_t Daemon::AwaitLog(const std::string& text, size_t count) const {
  for (const double end = Now() + 10;; usleep(5000)) {
    const std::string all = log();
    size_t found = 0;
    for (size_t at = 0; (at = all.find(text, at)) != std::string::npos; ++at) ++found;
    if (found >= count || Now() > end) return found;
  }
}

bool Daemon::AwaitEnd(pid_t worker, double seconds) {
  const double end = Now() + seconds;
  while (kill(worker, 0) == 0) {
    if (Now() > end) return false;
    usleep(5000);
  }
  return true;
}

std::unique_ptr<Process> StartGuest(const std::string& socket,
                                    const std::vector<std::string>& command,
                                    std::vector<std::string> environment) {
  std::vector<std::string> arguments = {SMOLVM_REMOTING_GUEST};
  arguments.insert(arguments.end(), command.begin(), command.end());
  environment.insert(environment.begin(),
                     {"SMOLVM_CUDA_ENDPOINT=unix:" + socket, "CUDA_VISIBLE_DEVICES",
                      "SMOLVM_CUDA_LOG", "SMOLVM_CUDA_LOG_FILE"});
  return std::make_unique<Process>(arguments, environment);
}

}  // namespace smolvm::remoting
