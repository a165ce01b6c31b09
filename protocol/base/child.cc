#include "protocol/base/child.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <string_view>

namespace smolvm {
namespace {

// What the child needs, made before it exists: it may allocate nothing.
struct Plan {
  const char* program;
  char* const* argv;
  char* const* env;
  const ChildOptions* options;
  pid_t parent;
  sigset_t mask;  // the parent's own
};

std::vector<char*> Pointers(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// The parent's environment with `added`, whose last word on a name is the one that counts.
std::vector<std::string> Environment(
    const std::vector<std::pair<std::string, std::string>>& added) {
  std::map<std::string, std::string> values;
  for (const auto& [name, value] : added) values[name] = value;
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (!values.contains(std::string(text.substr(0, text.find('='))))) all.emplace_back(text);
  }
  for (const auto& [name, value] : values) all.push_back(name + "=" + value);
  return all;
}

// Out of the way of the child's own 0, 1 and 2, which are filled one after the other.
bool Lift(int* fd) {
  if (*fd < 0 || *fd > STDERR_FILENO) return true;
  *fd = fcntl(*fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  return *fd >= 0;
}

bool Place(int from, int to) {
  if (from == ChildOptions::kInherit) return true;
  if (from == ChildOptions::kNull) from = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (from < 0) return false;
  if (from == to) return fcntl(to, F_SETFD, 0) == 0;  // `pass`, which is above 2
  return dup2(from, to) == to;
}

// Handlers are the parent's code, in memory that is the parent's as long as no other program runs
// here; none may run when signals are let through again.
void DropHandlers(bool defaults) {
  struct sigaction fresh {};
  fresh.sa_handler = SIG_DFL;
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction now {};
    if (sigaction(number, nullptr, &now) != 0) continue;
    const bool ours =
        number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGPIPE;
    if (now.sa_handler == SIG_DFL || (now.sa_handler == SIG_IGN && !(defaults && ours))) continue;
    sigaction(number, &fresh, nullptr);
  }
}

bool Arrange(const Plan& plan) {
  const ChildOptions& options = *plan.options;
  if (options.death_signal != 0) {
    prctl(PR_SET_PDEATHSIG, options.death_signal);
    // It is not sent when the parent ended before it was asked for.
    if (getppid() != plan.parent) _exit(125);
  }
  if (options.own_group) setpgid(0, 0);
  int input = options.input, output = options.output, error = options.error, pass = options.pass;
  if (!Lift(&input) || !Lift(&output) || !Lift(&error) || !Lift(&pass)) return false;
  if (!Place(input, STDIN_FILENO) || !Place(output, STDOUT_FILENO) ||
      !Place(error, STDERR_FILENO)) {
    return false;
  }
  if (pass >= 0) {
    if (!Place(pass, options.pass_as)) return false;
    closefrom(options.pass_as + 1);
  }
  if (options.prepare) options.prepare();
  DropHandlers(options.default_signals);
  sigset_t none;
  sigemptyset(&none);
  const sigset_t* mask = options.mask != nullptr ? options.mask : &plan.mask;
  pthread_sigmask(SIG_SETMASK, options.default_signals ? &none : mask, nullptr);
  return options.workdir.empty() || chdir(options.workdir.c_str()) == 0;
}

// In the child: shares the parent's memory, and the parent waits until it has become the program or
// is gone. Never returns.
[[noreturn, gnu::noinline]] void Become(const Plan& plan, volatile int* error) {
  if (Arrange(plan)) execvpe(plan.program, plan.argv, plan.env);
  *error = errno;
  _exit(127);
}

}  // namespace

pid_t StartChild(const std::string& program, const std::vector<std::string>& argv,
                 const ChildOptions& options, int* error) {
  const std::vector<char*> words = Pointers(argv);
  const std::vector<std::string> environment = Environment(options.env);
  const std::vector<char*> entries = Pointers(environment);
  Plan plan{program.c_str(), words.data(), entries.data(), &options, getpid(), {}};
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &plan.mask);
  volatile int failure = 0;
  const pid_t child = vfork();  // NOLINT(clang-analyzer-security.insecureAPI.vfork): see the header
  if (child == 0) Become(plan, &failure);
  if (child < 0) failure = errno;
  pthread_sigmask(SIG_SETMASK, &plan.mask, nullptr);
  *error = failure;
  if (failure == 0) return child;
  if (child > 0) {
    while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  return -1;
}

}  // namespace smolvm
