#include "machine/agent/command.h"

#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <vector>

#include "machine/agent/users.h"
#include "machine/util/failure.h"
#include "machine/util/files.h"

namespace smolvm::agent {
namespace {

using machine::ErrnoText;
using machine::ExecRequest;
using machine::ExitKind;
using machine::ExitReport;

constexpr size_t kMaxUserFile = 8 << 20;

std::string ReadIfThere(const char* path) {
  if (access(path, R_OK) != 0) return {};
  return machine::ReadFile(path, kMaxUserFile);
}

bool MakePipe(UniqueFd* read_end, UniqueFd* write_end) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return false;
  read_end->reset(fds[0]);
  write_end->reset(fds[1]);
  return true;
}

// The command's side of its streams, in the child.
struct ChildStreams {
  UniqueFd in, out, err, terminal;
};

bool OpenTerminal(const ExecRequest& request, Command* command, ChildStreams* child) {
  UniqueFd master(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  char name[64];
  if (!master.valid() || grantpt(master.get()) != 0 || unlockpt(master.get()) != 0 ||
      ptsname_r(master.get(), name, sizeof name) != 0) {
    return false;
  }
  child->terminal.reset(open(name, O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!child->terminal.valid()) return false;
  if (request.rows != 0 && request.columns != 0) {
    winsize size{};
    size.ws_row = request.rows;
    size.ws_col = request.columns;
    ioctl(master.get(), TIOCSWINSZ, &size);
  }
  command->in.reset(fcntl(master.get(), F_DUPFD_CLOEXEC, 0));
  command->out = std::move(master);
  return true;
}

bool OpenStreams(const ExecRequest& request, Command* command, ChildStreams* child) {
  if (request.tty) return OpenTerminal(request, command, child);
  if (request.stdin_open) {
    if (!MakePipe(&child->in, &command->in)) return false;
  } else {
    child->in.reset(open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!child->in.valid()) return false;
  }
  return MakePipe(&command->out, &child->out) && MakePipe(&command->err, &child->err);
}

std::vector<char*> Pointers(const std::vector<std::string>& list) {
  std::vector<char*> pointers;
  for (const std::string& item : list) pointers.push_back(const_cast<char*>(item.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// What the child tells its parent when it could not become the command.
struct StartError {
  enum Step : int { kStreams, kUser, kFolder, kExec } step;
  int error;
};

[[noreturn]] void GiveUp(int report, StartError::Step step) {
  const StartError error{step, errno};
  if (write(report, &error, sizeof error) < 0) _exit(125);
  _exit(0);
}

void UseStreams(const ExecRequest& request, const ChildStreams& child, int report) {
  if (setsid() < 0) GiveUp(report, StartError::kStreams);
  if (request.tty && ioctl(child.terminal.get(), TIOCSCTTY, 0) != 0) {
    GiveUp(report, StartError::kStreams);
  }
  const int in = request.tty ? child.terminal.get() : child.in.get();
  const int out = request.tty ? child.terminal.get() : child.out.get();
  const int err = request.tty ? child.terminal.get() : child.err.get();
  if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0) {
    GiveUp(report, StartError::kStreams);
  }
}

[[noreturn]] void BecomeCommand(const ExecRequest& request, const User& user,
                                const ChildStreams& child, int report) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  UseStreams(request, child, report);
  if (request.make_workdir) {
    std::error_code ignored;
    std::filesystem::create_directories(request.workdir, ignored);
  }
  if (!request.workdir.empty() && chdir(request.workdir.c_str()) != 0) {
    GiveUp(report, StartError::kFolder);
  }
  if (getuid() == 0 && (setgroups(user.groups.size(), user.groups.data()) != 0 ||
                        setgid(user.gid) != 0 || setuid(user.uid) != 0)) {
    GiveUp(report, StartError::kUser);
  }
  const std::vector<char*> argv = Pointers(request.argv);
  std::vector<char*> env = Pointers(request.env);
  environ = env.data();
  execvp(argv[0], argv.data());
  GiveUp(report, StartError::kExec);
}

// What the launcher puts "cannot run" before.
ExitReport Explain(const ExecRequest& request, const StartError& error) {
  const std::string& name = request.argv[0];
  switch (error.step) {
    case StartError::kStreams:
      return {ExitKind::kCannotRun, 0,
              name + ": its streams cannot be opened: " + ErrnoText(error.error)};
    case StartError::kUser:
      return {ExitKind::kCannotRun, 0,
              name + ": its user cannot be taken: " + ErrnoText(error.error)};
    case StartError::kFolder:
      return {ExitKind::kCannotRun, 0,
              name + ": the working folder " + request.workdir + ": " + ErrnoText(error.error)};
    case StartError::kExec:
      break;
  }
  if (error.error != ENOENT) {
    return {ExitKind::kCannotRun, 0, name + ": " + ErrnoText(error.error)};
  }
  if (name.find('/') != std::string::npos && access(name.c_str(), F_OK) == 0) {
    return {ExitKind::kCannotRun, 0,
            name + ": its interpreter or program loader is not in the image"};
  }
  return {ExitKind::kNotFound, 0, name + ": not found in the machine"};
}

}  // namespace

bool StartCommand(const ExecRequest& request, Command* command, ExitReport* failure) {
  const auto user = FindUser(request.user, ReadIfThere("/etc/passwd"), ReadIfThere("/etc/group"));
  if (!user) {
    *failure = {ExitKind::kCannotRun, 0,
                request.argv[0] + ": the image has no user '" + request.user + "'"};
    return false;
  }
  ExecRequest complete = request;
  bool has_home = false;
  for (const std::string& item : request.env) has_home |= item.rfind("HOME=", 0) == 0;
  if (!has_home) {
    complete.env.push_back("HOME=" + (user->uid == 0 && user->home == "/" ? "/root" : user->home));
  }
  ChildStreams child;
  UniqueFd report_in, report_out;
  if (!OpenStreams(request, command, &child) || !MakePipe(&report_in, &report_out)) {
    *failure = {ExitKind::kCannotRun, 0, "its streams cannot be opened: " + ErrnoText()};
    return false;
  }
  command->pid = fork();
  if (command->pid < 0) {
    *failure = {ExitKind::kCannotRun, 0, "no process can be made: " + ErrnoText()};
    return false;
  }
  if (command->pid == 0) BecomeCommand(complete, *user, child, report_out.get());
  report_out.reset();
  StartError error;
  if (read(report_in.get(), &error, sizeof error) != sizeof error) return true;
  waitpid(command->pid, nullptr, 0);
  *failure = Explain(request, error);
  return false;
}

}  // namespace smolvm::agent
