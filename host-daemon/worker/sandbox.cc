#include "host-daemon/worker/sandbox.h"

#include <fcntl.h>
#include <linux/landlock.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <utility>

#include "protocol/log/log.h"

namespace smolvm::worker {
namespace {

// --- Landlock, see landlock(7).

// Of the first version of the interface, and those that later ones added. What a kernel does not
// know must not be asked of it.
constexpr uint64_t kFirstAccesses = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1;
constexpr uint64_t kRefer = uint64_t{1} << 13;         // version 2: moving between folders
constexpr uint64_t kTruncate = uint64_t{1} << 14;      // version 3
constexpr uint64_t kIoctlDevices = uint64_t{1} << 15;  // version 5
constexpr uint64_t kReplaceAccesses = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR |
                                      LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG |
                                      LANDLOCK_ACCESS_FS_REMOVE_FILE | kTruncate;

uint64_t AccessesOf(long version) {
  return kFirstAccesses | (version >= 2 ? kRefer : 0) | (version >= 3 ? kTruncate : 0) |
         (version >= 5 ? kIoctlDevices : 0);
}

struct Descriptor {
  explicit Descriptor(long number) : fd(static_cast<int>(number)) {}
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  const int fd;
};

bool Fail(std::string* error, const std::string& what, int code) {
  *error = what + ": " + strerror(code);
  return false;
}

bool AllowFolder(int rules, const std::string& folder, uint64_t accesses, std::string* error) {
  mkdir(folder.c_str(), 0700);
  const Descriptor parent(open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  // Whoever wanted it has said that it cannot be used, and goes on without.
  if (parent.fd < 0) return true;
  landlock_path_beneath_attr rule{};
  rule.allowed_access = accesses;
  rule.parent_fd = parent.fd;
  return syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) == 0 ||
         Fail(error, "Landlock takes no rule for " + folder, errno);
}

bool CloseFiles(const SandboxNeeds& needs, std::string* error) {
  const long version =
      syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (version < 0) {
    // ENOSYS: a kernel before 5.13; EOPNOTSUPP: it is not among the kernel's security modules.
    log::Debug("event=no_landlock reason={}", log::Quote(strerror(errno)));
    return true;
  }
  landlock_ruleset_attr attributes{};
  attributes.handled_access_fs = AccessesOf(version);
  const Descriptor rules(syscall(SYS_landlock_create_ruleset, &attributes, sizeof attributes, 0));
  if (rules.fd < 0) return Fail(error, "no Landlock rules can be made", errno);
  const uint64_t accesses = needs.entries == SandboxNeeds::Entries::kReplace
                                ? kReplaceAccesses & attributes.handled_access_fs
                                : LANDLOCK_ACCESS_FS_REMOVE_FILE;
  if (!needs.folder.empty() && !AllowFolder(rules.fd, needs.folder, accesses, error)) return false;
  return syscall(SYS_landlock_restrict_self, rules.fd, 0) == 0 ||
         Fail(error, "Landlock cannot be entered", errno);
}

// --- seccomp, see seccomp(2)

// Names, because not every architecture has all of them.
constexpr const char* kForbidden[] = {
    // programs and processes
    "execve", "execveat", "fork", "vfork", "ptrace", "process_vm_readv", "process_vm_writev",
    "process_madvise", "kcmp", "pidfd_open", "pidfd_getfd", "pidfd_send_signal", "tkill",
    "rt_sigqueueinfo", "rt_tgsigqueueinfo", "setpgid", "setsid",
    // namespaces, mounts, roots
    "unshare", "setns", "mount", "umount", "umount2", "mount_setattr", "move_mount", "open_tree",
    "fsopen", "fsconfig", "fsmount", "fspick", "pivot_root", "chroot",
    // users and their rights
    "setuid", "setgid", "setreuid", "setregid", "setresuid", "setresgid", "setgroups", "setfsuid",
    "setfsgid", "capset", "personality", "add_key", "request_key", "keyctl",
    // files by other ways than their path, and what they are
    "name_to_handle_at", "open_by_handle_at", "mknod", "mknodat", "chmod", "fchmodat", "chown",
    "lchown", "fchownat", "fanotify_init", "fanotify_mark", "quotactl", "quotactl_fd", "swapon",
    "swapoff",
    // large doors into the kernel
    "bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter",
    "io_uring_register", "init_module", "finit_module", "delete_module", "kexec_load",
    "kexec_file_load", "ioperm", "iopl", "modify_ldt", "syslog", "acct", "reboot",
    // the machine's clock and name
    "settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "sethostname", "setdomainname"};

constexpr const char* kSocketCalls[] = {"socket", "connect", "bind", "listen", "accept", "accept4"};

constexpr uint32_t kRefuse = SCMP_ACT_ERRNO(EPERM);

// seccomp_rule_add_array returns 0 or -errno.
int RefuseWhen(scmp_filter_ctx filter, const char* name, std::initializer_list<scmp_arg_cmp> when,
               uint32_t action = kRefuse) {
  const int number = seccomp_syscall_resolve_name(name);
  // Negative: this architecture has it not (or, on some, as part of another call).
  if (number < 0) return 0;
  return seccomp_rule_add_array(filter, action, number, static_cast<unsigned>(when.size()),
                                when.begin());
}

int AddRules(scmp_filter_ctx filter, bool unix_sockets) {
  int code = 0;
  for (const char* name : kForbidden) {
    if (code == 0) code = RefuseWhen(filter, name, {});
  }
  const auto self = static_cast<scmp_datum_t>(getpid());
  const auto add = [&](const char* name, std::initializer_list<scmp_arg_cmp> when,
                       uint32_t action = kRefuse) {
    if (code == 0) code = RefuseWhen(filter, name, when, action);
  };
  if (unix_sockets) {
    add("socket", {SCMP_A0_64(SCMP_CMP_NE, AF_UNIX)});
  } else {
    for (const char* name : kSocketCalls) add(name, {});
  }
  // Threads are started, processes are not. clone3's flags lie in memory that a filter cannot read:
  // "not there" makes the C library use clone.
  add("clone", {SCMP_A0_64(SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0)});
  add("clone3", {}, SCMP_ACT_ERRNO(ENOSYS));
  // Signals to itself alone, as abort() sends them.
  add("kill", {SCMP_A0_64(SCMP_CMP_NE, self)});
  add("tgkill", {SCMP_A0_64(SCMP_CMP_NE, self)});
  add("prlimit64", {SCMP_A0_64(SCMP_CMP_NE, 0)});
  return code;
}

bool FilterCalls(bool unix_sockets, std::string* error) {
  const std::unique_ptr<void, void (*)(scmp_filter_ctx)> filter(seccomp_init(SCMP_ACT_ALLOW),
                                                                seccomp_release);
  int code = filter == nullptr ? -ENOMEM : AddRules(filter.get(), unix_sockets);
  // For all threads, should a library have started one.
  if (code == 0) code = seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_TSYNC, 1);
  // A tree of numbers rather than a list; calls that are always allowed cost nothing at all from
  // Linux 5.11 on.
  if (code == 0) code = seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_OPTIMIZE, 2);
  if (code == 0) code = seccomp_load(filter.get());
  return code == 0 || Fail(error, "the filter of system calls cannot be set", -code);
}

bool HasOneThread() {
#ifdef __SANITIZE_THREAD__
  return true;  // the sanitizer has a thread of its own
#else
  std::error_code code;
  const std::filesystem::directory_iterator threads("/proc/self/task", code);
  return code || std::distance(begin(threads), end(threads)) == 1;
#endif
}

}  // namespace

bool EnterSandbox(const SandboxNeeds& needs, std::string* error) {
  if (!HasOneThread()) {
    *error = "the backend has started threads, which Landlock would not hold for";
    return false;
  }
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return Fail(error, "no_new_privs", errno);
  return CloseFiles(needs, error) && FilterCalls(needs.unix_sockets, error);
}

}  // namespace smolvm::worker
