#include "host-daemon/sandbox/call_filter.h"

#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <initializer_list>
#include <memory>

namespace smolvm::sandbox {
namespace {

// Names, because not every architecture has all of them. Whatever their arguments say, these touch
// nothing but this process and what it has open.
constexpr const char* kAlways[] = {
    // memory
    "brk", "munmap", "mremap", "madvise", "membarrier", "msync",
    // threads, time, signals of its own
    "futex", "sched_yield", "set_robust_list", "rseq", "gettid", "getpid", "nanosleep",
    "clock_nanosleep", "clock_gettime", "clock_getres", "gettimeofday", "time", "restart_syscall",
    "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "rt_sigpending", "rt_sigtimedwait",
    "sigaltstack", "exit", "exit_group",
    // what is open
    "read", "write", "readv", "writev", "pread64", "lseek", "fstat", "close", "poll", "ppoll",
    "recvfrom", "recvmsg", "sendmsg", "shutdown", "dup", "eventfd2",
    // who and where it is
    "getrandom", "sysinfo", "uname", "getuid", "geteuid", "getgid", "getegid", "getcpu"};

#ifdef SMOLVM_SANITIZED
// By which UBSan tries whether memory can be read.
constexpr const char* kSanitizers[] = {"pipe2"};
#endif

// Of a process that is a vsock device: waiting, and what QEMU hands it.
constexpr const char* kDevice[] = {"epoll_ctl", "epoll_wait", "epoll_pwait", "accept4"};

// Calls by a path, which Landlock looks at.
constexpr const char* kReplacing[] = {
    "openat", "open",      "getdents64", "renameat", "renameat2", "rename", "unlinkat",
    "unlink", "faccessat", "faccessat2", "mkdirat",  "ftruncate", "fsync"};
constexpr const char* kReading[] = {"openat",     "open",   "getdents64", "newfstatat", "statx",
                                    "readlinkat", "statfs", "fstatfs",    "umask"};
constexpr const char* kServing[] = {"renameat2", "renameat", "rename",    "unlink",    "unlinkat",
                                    "mkdirat",   "mknodat",  "symlinkat", "linkat",    "fchownat",
                                    "fchmodat",  "chmod",    "utimensat", "ftruncate", "fallocate",
                                    "pwrite64",  "fsync",    "fdatasync"};
constexpr const char* kRemoving[] = {"unlink", "unlinkat"};

constexpr uint32_t kRefuse = SCMP_ACT_ERRNO(EPERM);

class Filter {
 public:
  explicit Filter(scmp_filter_ctx context) : context_(context) {}

  int code() const { return code_; }

  void Add(const char* name, std::initializer_list<scmp_arg_cmp> when = {},
           uint32_t action = SCMP_ACT_ALLOW) {
    const int number = seccomp_syscall_resolve_name(name);
    // Negative: this architecture has it not.
    if (number < 0 || code_ != 0) return;
    code_ = seccomp_rule_add_array(context_, action, number, static_cast<unsigned>(when.size()),
                                   when.begin());
  }
  template <size_t kCount>
  void AddAll(const char* const (&names)[kCount]) {
    for (const char* name : names) Add(name);
  }

 private:
  scmp_filter_ctx context_;
  int code_ = 0;
};

scmp_arg_cmp Is(unsigned argument, uint64_t value) { return {argument, SCMP_CMP_EQ, value, 0}; }
// None of `bits`.
scmp_arg_cmp Without(unsigned argument, uint64_t bits) {
  return {argument, SCMP_CMP_MASKED_EQ, bits, 0};
}

void AddMemory(Filter& filter, const SandboxNeeds& needs) {
  filter.Add("mmap", {Without(2, PROT_EXEC)});
  filter.Add("mprotect", {Without(2, PROT_EXEC)});
  if (needs.code_bytes == 0) return;
  // Code is written before, and read-only from here on.
  filter.Add("mprotect", {{0, SCMP_CMP_MASKED_EQ, ~(uint64_t{needs.code_bytes} - 1), needs.code},
                          {1, SCMP_CMP_LE, needs.code_bytes, 0},
                          Is(2, PROT_READ | PROT_EXEC)});
}

// Threads, as the C library starts them. clone3's flags lie in memory that a filter cannot read:
// "not there" makes it use clone.
void AddThreads(Filter& filter) {
  constexpr uint64_t kThread = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
                               CLONE_SYSVSEM | CLONE_SETTLS | CLONE_PARENT_SETTID |
                               CLONE_CHILD_CLEARTID;
  filter.Add("clone", {Is(0, kThread)});
  filter.Add("clone3", {}, SCMP_ACT_ERRNO(ENOSYS));
  // Signals to itself alone, as abort() sends them.
  const auto self = static_cast<uint64_t>(getpid());
  filter.Add("kill", {Is(0, self)});
  filter.Add("tgkill", {Is(0, self)});
  // To be read: of itself, and on which processors a thread may run (the C library asks by number,
  // of its own; that those of another process could be asked for gives nothing away).
  filter.Add("sched_getaffinity");
  filter.Add("getrlimit");
  filter.Add("prlimit64", {Is(0, 0), Is(2, 0)});
  filter.Add("prctl", {Is(0, PR_SET_NAME)});
  filter.Add("prctl", {Is(0, PR_SET_VMA)});
}

void AddDescriptors(Filter& filter, const SandboxNeeds& needs) {
  for (const uint64_t command : {F_GETFD, F_SETFD, F_GETFL, F_DUPFD_CLOEXEC})
    filter.Add("fcntl", {Is(1, command)});
  // Not O_ASYNC, by which the kernel sends signals to whom F_SETOWN named.
  filter.Add("fcntl", {Is(1, F_SETFL), Without(2, ~uint64_t{O_NONBLOCK | O_APPEND | O_ACCMODE |
                                                            O_LARGEFILE | 0100000})});
  // No name: a socket goes where it is connected.
  filter.Add("sendto", {Is(4, 0), Is(5, 0)});
  filter.Add("getsockopt", {Is(1, SOL_SOCKET)});
  filter.Add("setsockopt", {Is(1, SOL_SOCKET), Is(2, SO_SNDTIMEO)});
  for (const int fd : needs.outputs) {
    filter.Add("fallocate", {Is(0, static_cast<uint64_t>(fd)),
                             Is(1, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)});
    filter.Add("ftruncate", {Is(0, static_cast<uint64_t>(fd))});
  }
}

void AddSockets(Filter& filter, const SandboxNeeds& needs) {
  constexpr uint64_t kFlags = SOCK_CLOEXEC | SOCK_NONBLOCK;
  if (needs.accepts) {
    filter.AddAll(kDevice);
    filter.Add("socketpair", {Is(0, AF_UNIX), {1, SCMP_CMP_MASKED_EQ, ~kFlags, SOCK_STREAM}});
  }
  if (needs.connects) {
    filter.Add("socket", {Is(0, AF_UNIX), {1, SCMP_CMP_MASKED_EQ, ~kFlags, SOCK_STREAM}});
    filter.Add("connect");
  }
}

void AddFiles(Filter& filter, SandboxNeeds::Entries entries, bool has_landlock) {
  using Entries = SandboxNeeds::Entries;
  if (entries == Entries::kRemove) filter.AddAll(kRemoving);
  if (entries == Entries::kReplace && has_landlock) filter.AddAll(kReplacing);
  if (entries == Entries::kServe || entries == Entries::kRead) filter.AddAll(kReading);
  if (entries == Entries::kServe) filter.AddAll(kServing);
}

}  // namespace

bool FilterCalls(const SandboxNeeds& needs, bool has_landlock, std::string* error) {
  const std::unique_ptr<void, void (*)(scmp_filter_ctx)> context(seccomp_init(kRefuse),
                                                                 seccomp_release);
  int code = context == nullptr ? -ENOMEM : 0;
  if (code == 0) {
    Filter filter(context.get());
    filter.AddAll(kAlways);
#ifdef SMOLVM_SANITIZED
    filter.AddAll(kSanitizers);
#endif
    AddMemory(filter, needs);
    AddThreads(filter);
    AddDescriptors(filter, needs);
    AddSockets(filter, needs);
    if (!needs.folder.empty()) AddFiles(filter, needs.entries, has_landlock);
    code = filter.code();
  }
  // For all threads, should a library have started one.
  if (code == 0) code = seccomp_attr_set(context.get(), SCMP_FLTATR_CTL_TSYNC, 1);
  // A tree of numbers rather than a list; calls that are always allowed cost nothing at all from
  // Linux 5.11 on.
  if (code == 0) code = seccomp_attr_set(context.get(), SCMP_FLTATR_CTL_OPTIMIZE, 2);
  // Another architecture's calls end the process.
  if (code == 0)
    code = seccomp_attr_set(context.get(), SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
  if (code == 0) code = seccomp_load(context.get());
  if (code == 0) return true;
  *error = std::string("the filter of system calls cannot be set: ") + strerror(-code);
  return false;
}

}  // namespace smolvm::sandbox
