// Native code in a sandboxed process: what an attack found to work (the first of each group), and
// more of its kind. Each is tried in a child that has entered the sandbox.
#include "host-daemon/sandbox/sandbox.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace smolvm::sandbox {
namespace {

#if defined(__SANITIZE_THREAD__)
#define SKIP_UNDER_TSAN() GTEST_SKIP() << "the sanitizer forbids to start threads after fork"
#else
#define SKIP_UNDER_TSAN() static_cast<void>(0)
#endif

constexpr size_t kCodeBytes = 1 << 20;

class SandboxTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / "smolvm-sandbox-XXXXXX";
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    file_ = folder_ + "/victim";
    std::ofstream(file_) << "host";
    victim_ = fork();
    if (victim_ == 0) {
      for (;;) pause();
    }
  }
  void TearDown() override {
    kill(victim_, SIGKILL);
    waitpid(victim_, nullptr, 0);
    std::filesystem::remove_all(folder_);
  }

  // Runs `body` in a child inside the sandbox, and returns what it returned (up to 255); -1 when
  // the child was killed, 254 when it did not get in.
  static int Inside(const SandboxNeeds& needs, const std::function<int()>& body) {
    const pid_t child = fork();
    if (child == 0) {
      std::string error;
      if (!EnterSandbox(needs, &error)) _exit(254);
      _exit(body());
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  struct Attempt {
    const char* name;
    std::function<long()> call;
  };
  // Names those that did not fail with EPERM.
  static void ExpectAllRefused(const SandboxNeeds& needs, const std::vector<Attempt>& attempts) {
    for (size_t k = 0; k < attempts.size(); ++k) {
      const int outcome = Inside(needs, [&] {
        errno = 0;
        const long result = attempts[k].call();
        return result == -1 || result == reinterpret_cast<long>(MAP_FAILED) ? errno : 253;
      });
      EXPECT_EQ(outcome, EPERM) << attempts[k].name
                                << (outcome == 253   ? " was done"
                                    : outcome == 254 ? ": no sandbox"
                                                     : std::string(": ") + strerror(outcome));
    }
  }
  static void ExpectAllRefused(const std::vector<Attempt>& attempts) {
    ExpectAllRefused({}, attempts);
  }

  std::string folder_, file_;
  pid_t victim_ = -1;
};

// Everything that the sandbox lets through, with some arguments at least. Whoever adds one to the
// filter says so here.
const char* const kLetThrough[] = {
    "brk", "munmap", "mremap", "madvise", "membarrier", "futex", "sched_yield", "set_robust_list",
    "rseq", "gettid", "getpid", "nanosleep", "clock_nanosleep", "clock_gettime", "clock_getres",
    "gettimeofday", "time", "restart_syscall", "rt_sigaction", "rt_sigprocmask", "rt_sigreturn",
    "rt_sigpending", "rt_sigtimedwait", "sigaltstack", "exit", "exit_group", "read", "write",
    "readv", "writev", "pread64", "lseek", "fstat", "close", "poll", "ppoll", "recvfrom", "recvmsg",
    "sendmsg", "shutdown", "dup", "getrandom", "sysinfo", "uname", "getuid", "geteuid", "getgid",
    "getegid", "getcpu", "getrlimit", "eventfd2", "msync",
    // with some arguments
    "mmap", "mprotect", "clone", "clone3", "kill", "tgkill", "sched_getaffinity", "prlimit64",
    "prctl", "fcntl", "sendto", "getsockopt", "setsockopt"};

TEST_F(SandboxTest, NoOtherCallIsLetThrough) {
  std::set<int> open;
  for (const char* name : kLetThrough) open.insert(seccomp_syscall_resolve_name(name));
#ifdef SMOLVM_SANITIZED
  open.insert(seccomp_syscall_resolve_name("pipe2"));
#endif
#if defined(__x86_64__)
  // uretprobe and uprobe: Linux from 6.11 on lets no filter see them, and nobody but a probe of
  // root's use them.
  open.insert({335, 336});
#endif
  constexpr int kMostNumbers = 600;
  for (int number = 0; number < kMostNumbers; ++number) {
    if (open.contains(number)) continue;
    const int outcome = Inside({}, [number] {
      errno = 0;
      return syscall(number, -1L, -1L, -1L, -1L, -1L, -1L) == -1 ? errno : 253;
    });
    char* const name = seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, number);
    EXPECT_EQ(outcome, EPERM) << number << " " << (name == nullptr ? "" : name);
    free(name);
  }
}

TEST_F(SandboxTest, NoSignalReachesAnother) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const pid_t victim = victim_;
  f_owner_ex owner{F_OWNER_PID, victim};
  ExpectAllRefused({
      {"F_SETOWN", [=] { return fcntl(ends[0], F_SETOWN, victim); }},
      {"F_SETOWN_EX", [&] { return fcntl(ends[0], F_SETOWN_EX, &owner); }},
      {"F_SETSIG", [=] { return fcntl(ends[0], F_SETSIG, SIGKILL); }},
      {"O_ASYNC", [=] { return fcntl(ends[0], F_SETFL, O_ASYNC); }},
      {"O_ASYNC and more", [=] { return fcntl(ends[0], F_SETFL, O_ASYNC | O_NONBLOCK); }},
      {"F_NOTIFY", [=] { return fcntl(ends[0], F_NOTIFY, DN_ACCESS); }},
      {"F_SETLEASE", [=] { return fcntl(ends[0], F_SETLEASE, F_WRLCK); }},
      {"FIOSETOWN", [=] { return ioctl(ends[0], FIOSETOWN, &victim); }},
      {"kill", [=] { return kill(victim, SIGKILL); }},
      {"kill, the group", [] { return kill(0, SIGKILL); }},
      {"kill, all", [] { return kill(-1, 0); }},
      {"tgkill", [=] { return syscall(SYS_tgkill, victim, victim, SIGKILL); }},
      {"tkill", [=] { return syscall(SYS_tkill, victim, SIGKILL); }},
      {"rt_sigqueueinfo", [=] { return syscall(SYS_rt_sigqueueinfo, victim, SIGKILL, nullptr); }},
      {"pidfd_open", [=] { return syscall(SYS_pidfd_open, victim, 0); }},
      {"pidfd_send_signal", [] { return syscall(SYS_pidfd_send_signal, 0, SIGKILL, 0, 0); }},
      {"timer_create", [] { return syscall(SYS_timer_create, CLOCK_REALTIME, nullptr, nullptr); }},
      {"PR_SET_PDEATHSIG", [] { return prctl(PR_SET_PDEATHSIG, 0); }},
  });
  EXPECT_EQ(waitpid(victim_, nullptr, WNOHANG), 0);
  close(ends[0]);
  close(ends[1]);
}

TEST_F(SandboxTest, NoFileIsChangedNamedOrWatched) {
  const char* const file = file_.c_str();
  const int held = open(file, O_RDWR | O_CLOEXEC);
  const std::string other = folder_ + "/other";
  struct stat status {};
  const timespec times[2] = {{1, 0}, {1, 0}};
  const uint32_t all[] = {0x02000001, ~0u, 0, ~0u, 0};
  ExpectAllRefused({
      {"fchmodat2", [=] { return syscall(452, AT_FDCWD, file, 04777, 0); }},
      {"chmod", [=] { return chmod(file, 04777); }},
      {"fchmod", [=] { return fchmod(held, 04777); }},
      {"fchown", [=] { return fchown(held, 1, 1); }},
      {"lchown", [=] { return lchown(file, 1, 1); }},
      {"setxattr", [=] { return setxattr(file, "user.x", "1", 1, 0); }},
      {"capabilities", [&] { return setxattr(file, "security.capability", all, sizeof all, 0); }},
      {"fsetxattr", [=] { return fsetxattr(held, "user.x", "1", 1, 0); }},
      {"setxattrat", [=] { return syscall(463, AT_FDCWD, file, 0, "user.y", nullptr, 0); }},
      {"getxattr", [=] { return getxattr(file, "user.x", nullptr, 0); }},
      {"removexattr", [=] { return removexattr(file, "user.x"); }},
      {"utimensat", [&] { return utimensat(AT_FDCWD, file, times, 0); }},
      {"futimens", [&] { return futimens(held, times); }},
      {"stat", [&] { return stat(file, &status); }},
      {"fstat by the C library", [&] { return fstatat(AT_FDCWD, file, &status, AT_EMPTY_PATH); }},
      {"statx", [=] { return syscall(SYS_statx, AT_FDCWD, file, 0, 0xfff, nullptr); }},
      {"access", [=] { return faccessat(AT_FDCWD, file, R_OK, 0); }},
      {"readlink", [=] { return syscall(SYS_readlinkat, AT_FDCWD, file, nullptr, 0); }},
      {"inotify", [] { return syscall(SYS_inotify_init1, 0); }},
      {"fanotify", [] { return syscall(SYS_fanotify_init, 0, 0); }},
      {"chdir", [] { return chdir("/"); }},
      {"fchdir", [=] { return fchdir(held); }},
      {"chroot", [] { return chroot("/"); }},
      {"open", [=] { return open(file, O_RDONLY); }},
      {"open to write", [=] { return open(file, O_WRONLY | O_TRUNC); }},
      {"open of a folder", [] { return open("/proc/self/fd", O_RDONLY | O_DIRECTORY); }},
      {"openat2", [=] { return syscall(SYS_openat2, AT_FDCWD, file, nullptr, 0); }},
      {"creat", [&] { return creat(other.c_str(), 0600); }},
      {"truncate", [=] { return truncate(file, 0); }},
      {"ftruncate", [=] { return ftruncate(held, 0); }},
      {"pwrite", [=] { return pwrite(held, "x", 1, 0); }},
      {"fallocate", [=] { return fallocate(held, 0, 0, 1 << 20); }},
      {"unlink", [=] { return unlink(file); }},
      {"rename", [&] { return rename(file, other.c_str()); }},
      {"link", [&] { return link(file, other.c_str()); }},
      {"symlink", [&] { return symlink(file, other.c_str()); }},
      {"mkdir", [&] { return mkdir(other.c_str(), 0700); }},
      {"mknod", [&] { return mknod(other.c_str(), S_IFIFO | 0600, 0); }},
      {"flock", [=] { return syscall(SYS_flock, held, 2); }},
      {"F_SETLK",
       [=] {
         struct flock lock {};
         lock.l_type = F_WRLCK;
         return fcntl(held, F_SETLK, &lock);
       }},
      {"F_ADD_SEALS", [=] { return fcntl(held, F_ADD_SEALS, 1); }},
      {"name_to_handle_at", [=] { return syscall(SYS_name_to_handle_at, held, file, 0, 0, 0); }},
      {"mount", [] { return syscall(SYS_mount, "a", "/", "tmpfs", 0, 0); }},
      {"open_tree", [] { return syscall(SYS_open_tree, AT_FDCWD, "/", 0); }},
      {"memfd_create", [] { return syscall(SYS_memfd_create, "x", 0); }},
      {"sendfile", [=] { return syscall(SYS_sendfile, held, held, nullptr, 1); }},
      {"copy_file_range", [=] { return syscall(SYS_copy_file_range, held, 0, held, 0, 1, 0); }},
      {"splice", [=] { return syscall(SYS_splice, held, 0, held, 0, 1, 0); }},
  });
  close(held);
  EXPECT_EQ(std::filesystem::file_size(file_), 4u);
  EXPECT_FALSE(std::filesystem::exists(other));
}

TEST_F(SandboxTest, NobodyElseIsSpokenTo) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends), 0);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const std::string path = folder_ + "/socket";
  path.copy(name.sun_path, sizeof name.sun_path - 1);
  const auto* address = reinterpret_cast<const sockaddr*>(&name);
  ExpectAllRefused({
      {"sendto a name",
       [=, size = sizeof name] { return sendto(ends[0], "x", 1, 0, address, size); }},
      {"sendto a name's length",
       [=, size = sizeof name] { return syscall(SYS_sendto, ends[0], "x", 1, 0, nullptr, size); }},
      {"sendmmsg", [=] { return syscall(SYS_sendmmsg, ends[0], nullptr, 0, 0); }},
      {"socket, unix", [] { return socket(AF_UNIX, SOCK_DGRAM, 0); }},
      {"socket, inet", [] { return socket(AF_INET, SOCK_STREAM, 0); }},
      {"socket, netlink", [] { return socket(AF_NETLINK, SOCK_RAW, 0); }},
      {"socket, vsock", [] { return socket(AF_VSOCK, SOCK_STREAM, 0); }},
      {"socketpair, datagrams",
       [] {
         int pair[2];
         return socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
       }},
      {"socketpair, streams",
       [] {
         int pair[2];
         return socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
       }},
      {"connect", [=, size = sizeof name] { return connect(ends[0], address, size); }},
      {"bind", [=, size = sizeof name] { return bind(ends[0], address, size); }},
      {"listen", [=] { return listen(ends[0], 1); }},
      {"accept", [=] { return accept(ends[0], nullptr, nullptr); }},
      {"a socket's filter",
       [=] { return setsockopt(ends[0], SOL_SOCKET, SO_ATTACH_FILTER, nullptr, 0); }},
      {"TIOCSTI", [] { return ioctl(STDERR_FILENO, TIOCSTI, "x"); }},
      {"TCGETS", [] { return ioctl(STDERR_FILENO, TCGETS, nullptr); }},
      {"TIOCSCTTY", [] { return ioctl(STDIN_FILENO, TIOCSCTTY, 1); }},
      {"shmget", [] { return shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600); }},
      {"shmat", [] { return syscall(SYS_shmat, 0, nullptr, 0); }},
      {"semget", [] { return syscall(SYS_semget, 0, 1, 0600); }},
      {"msgget", [] { return syscall(SYS_msgget, 0, 0600); }},
      {"mq_open", [] { return syscall(SYS_mq_open, "x", O_CREAT, 0600, nullptr); }},
  });
  close(ends[0]);
  close(ends[1]);
}

TEST_F(SandboxTest, NoProcessIsStartedReadOrScheduled) {
  const pid_t victim = victim_;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(0, &one);
  sched_param idle{};
  const sched_param first{.sched_priority = 99};
  const rlimit limit{1, 1};
  ExpectAllRefused({
      {"clone", [] { return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); }},
      {"clone, sharing", [] { return syscall(SYS_clone, CLONE_VM | SIGCHLD, 0, 0, 0, 0); }},
      {"clone, new user", [] { return syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0); }},
      {"execve", [] { return syscall(SYS_execve, "/bin/true", nullptr, nullptr); }},
      {"execveat", [] { return syscall(SYS_execveat, 0, "", nullptr, nullptr, AT_EMPTY_PATH); }},
      {"unshare", [] { return unshare(CLONE_NEWUSER); }},
      {"unshare, files", [] { return unshare(CLONE_FS); }},
      {"setns", [] { return setns(0, 0); }},
      {"ptrace", [=] { return syscall(SYS_ptrace, 16, victim, 0, 0); }},
      {"process_vm_readv", [=] { return syscall(SYS_process_vm_readv, victim, 0, 0, 0, 0, 0); }},
      {"process_vm_writev", [=] { return syscall(SYS_process_vm_writev, victim, 0, 0, 0, 0, 0); }},
      {"kcmp", [=] { return syscall(SYS_kcmp, victim, victim, 0, 0, 0); }},
      {"get_robust_list", [=] { return syscall(SYS_get_robust_list, victim, nullptr, nullptr); }},
      {"setpriority", [=] { return setpriority(PRIO_PROCESS, victim, 19); }},
      {"getpriority", [=] { return getpriority(PRIO_PROCESS, victim); }},
      {"sched_setaffinity", [&, victim] { return sched_setaffinity(victim, sizeof one, &one); }},
      {"its own sched_setaffinity", [&] { return sched_setaffinity(0, sizeof one, &one); }},
      {"sched_setscheduler", [&, victim] { return sched_setscheduler(victim, SCHED_IDLE, &idle); }},
      {"its own SCHED_FIFO", [&] { return sched_setscheduler(0, SCHED_FIFO, &first); }},
      {"sched_setattr", [] { return syscall(SYS_sched_setattr, 0, nullptr, 0); }},
      {"ioprio_set", [=] { return syscall(SYS_ioprio_set, 1, victim, 3 << 13); }},
      {"prlimit", [&, victim] { return syscall(SYS_prlimit64, victim, 0, nullptr, nullptr); }},
      {"its own limits", [&] { return syscall(SYS_prlimit64, 0, RLIMIT_CORE, &limit, nullptr); }},
      {"setrlimit", [&] { return syscall(SYS_setrlimit, RLIMIT_CORE, &limit); }},
      {"migrate_pages", [=] { return syscall(SYS_migrate_pages, victim, 0, nullptr, nullptr); }},
      {"setpgid", [=] { return setpgid(0, victim); }},
      {"setsid", [] { return setsid(); }},
      {"setuid", [] { return setuid(0); }},
      {"capset", [] { return syscall(SYS_capset, nullptr, nullptr); }},
      {"personality", [] { return syscall(SYS_personality, 0x0040000); }},
      {"PR_SET_DUMPABLE", [] { return prctl(PR_SET_DUMPABLE, 1); }},
      {"PR_SET_PTRACER", [] { return prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY); }},
      {"PR_SET_MM", [] { return prctl(PR_SET_MM, PR_SET_MM_BRK, 0, 0, 0); }},
      {"PR_SET_SECCOMP", [] { return prctl(PR_SET_SECCOMP, 1); }},
      {"io_uring", [] { return syscall(SYS_io_uring_setup, 1, nullptr); }},
      {"bpf", [] { return syscall(SYS_bpf, 0, nullptr, 0); }},
      {"perf_event_open", [] { return syscall(SYS_perf_event_open, nullptr, 0, -1, -1, 0); }},
      {"userfaultfd", [] { return syscall(SYS_userfaultfd, 0); }},
      {"keyctl", [] { return syscall(SYS_keyctl, 0, 0, 0, 0, 0); }},
  });
  EXPECT_EQ(Inside({}, [] { return syscall(SYS_clone3, nullptr, 0) == -1 ? errno : 0; }), ENOSYS);
}

TEST_F(SandboxTest, MemoryIsNeverWritableAndExecutable) {
  void* all = mmap(nullptr, 2 * kCodeBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(all, MAP_FAILED);
  const uintptr_t code =
      (reinterpret_cast<uintptr_t>(all) + kCodeBytes - 1) & ~uintptr_t{kCodeBytes - 1};
  const SandboxNeeds needs{.code = code, .code_bytes = kCodeBytes};
  const auto protect = [](uintptr_t address, size_t bytes, int how) {
    return mprotect(reinterpret_cast<void*>(address), bytes, how);
  };
  constexpr int kAll = PROT_READ | PROT_WRITE | PROT_EXEC, kCode = PROT_READ | PROT_EXEC;
  const auto heap = reinterpret_cast<uintptr_t>(
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ExpectAllRefused(
      needs,
      {
          {"mmap, all",
           [] {
             return reinterpret_cast<long>(
                 mmap(nullptr, 4096, kAll, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
           }},
          {"mmap, code",
           [] {
             return reinterpret_cast<long>(
                 mmap(nullptr, 4096, kCode, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
           }},
          {"mmap, execute alone",
           [] {
             return reinterpret_cast<long>(
                 mmap(nullptr, 4096, PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
           }},
          {"the heap", [=] { return protect(heap, 4096, kCode); }},
          {"the heap, all", [=] { return protect(heap, 4096, kAll); }},
          {"the heap, execute alone", [=] { return protect(heap, 4096, PROT_EXEC); }},
          {"code, all", [=] { return protect(code, 4096, kAll); }},
          {"code, without reading", [=] { return protect(code, 4096, PROT_EXEC); }},
          {"before code", [=] { return protect(code - 4096, 4096, kCode); }},
          {"behind code", [=] { return protect(code + kCodeBytes, 4096, kCode); }},
          {"more than code", [=] { return protect(code, kCodeBytes + 4096, kCode); }},
          {"the high half", [=] { return protect(code | (uintptr_t{1} << 63), 4096, kCode); }},
          {"pkey_mprotect", [=] { return syscall(SYS_pkey_mprotect, code, 4096, kCode, -1); }},
          {"READ_IMPLIES_EXEC", [] { return syscall(SYS_personality, 0x0400000); }},
      });
  EXPECT_EQ(Inside(needs,
                   [=] {
                     if (protect(code, 4096, PROT_READ | PROT_WRITE) != 0) return 1;
                     *reinterpret_cast<unsigned char*>(code) = 0xc3;
                     if (protect(code, 4096, kCode) != 0) return 2;
                     reinterpret_cast<void (*)()>(code)();
                     return 0;
                   }),
            0);
  munmap(all, 2 * kCodeBytes);
}

#if defined(__x86_64__)
TEST_F(SandboxTest, AnotherAbiEndsTheProcess) {
  constexpr long kX32 = 0x40000000;
  EXPECT_EQ(Inside({}, [] { return syscall(kX32 + SYS_getpid) > 0 ? 0 : errno; }), -1);
}
#endif

TEST_F(SandboxTest, NoCapabilityIsLeft) {
  // Asked before the calls are filtered: there is none to ask with behind.
  const pid_t child = fork();
  if (child == 0) {
    int ends[2];
    std::string error;
    if (pipe(ends) != 0 || !EnterSandbox({}, &error)) _exit(1);
    for (;;) {
      pollfd none{ends[0], POLLIN, 0};
      poll(&none, 1, -1);
    }
  }
  const std::string path = "/proc/" + std::to_string(child) + "/status";
  std::string text;
  // It is in once its filter is there.
  for (int k = 0; k < 1000 && text.find("Seccomp:\t2") == std::string::npos; ++k) {
    std::ifstream file(path);
    text.assign(std::istreambuf_iterator<char>(file), {});
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  for (const char* field : {"CapInh", "CapPrm", "CapEff", "CapAmb"}) {
    EXPECT_NE(text.find(std::string(field) + ":\t0000000000000000"), std::string::npos)
        << field << " in: " << text;
  }
  EXPECT_NE(text.find("NoNewPrivs:\t1"), std::string::npos);
}

TEST_F(SandboxTest, WhatItNeedsItHas) {
  SKIP_UNDER_TSAN();
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const int output = memfd_create("output", MFD_CLOEXEC);
  EXPECT_EQ(Inside({.outputs = {output}},
                   [=] {
                     bool ran = false;
                     std::thread([&] { ran = true; }).join();
                     if (!ran) return 1;
                     char byte = 'x';
                     if (send(ends[0], &byte, 1, MSG_NOSIGNAL) != 1) return 2;
                     if (recv(ends[1], &byte, 1, 0) != 1) return 3;
                     if (fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) return 4;
                     if (fcntl(ends[0], F_SETFL, fcntl(ends[0], F_GETFL) & ~O_NONBLOCK) != 0)
                       return 5;
                     if (write(output, "text", 4) != 4) return 6;
                     if (fallocate(output, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4) != 0)
                       return 7;
                     void* memory = mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                     if (memory == MAP_FAILED || mprotect(memory, 4096, PROT_NONE) != 0) return 8;
                     if (raise(0) != 0 || std::thread::hardware_concurrency() == 0) return 9;
                     std::string text(1 << 20, 'x');  // the allocator's ways to the kernel
                     return text.back() == 'x' ? 0 : 10;
                   }),
            0);
  close(output);
  close(ends[0]);
  close(ends[1]);
}

TEST_F(SandboxTest, ABrokerMakesStreamsOfUnixSocketsAlone) {
  const SandboxNeeds needs{.connects = true};
  ExpectAllRefused(needs, {
                              {"datagrams", [] { return socket(AF_UNIX, SOCK_DGRAM, 0); }},
                              {"inet", [] { return socket(AF_INET, SOCK_STREAM, 0); }},
                              {"bind", [] { return bind(0, nullptr, 0); }},
                              {"accept", [] { return accept(0, nullptr, nullptr); }},
                          });
  EXPECT_EQ(
      Inside(needs, [] { return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0) >= 0 ? 0 : errno; }),
      0);
}

TEST_F(SandboxTest, ADeviceConnectsToNothing) {
  const SandboxNeeds needs{
      .folder = folder_, .entries = SandboxNeeds::Entries::kRemove, .accepts = true};
  const char* const file = file_.c_str();
  ExpectAllRefused(needs, {
                              {"socket", [] { return socket(AF_UNIX, SOCK_STREAM, 0); }},
                              {"connect", [] { return connect(0, nullptr, 0); }},
                              {"bind", [] { return bind(0, nullptr, 0); }},
                              {"a pair of datagrams",
                               [] {
                                 int pair[2];
                                 return socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
                               }},
                              {"open", [=] { return open(file, O_RDONLY); }},
                          });
  EXPECT_EQ(Inside(needs, [=] { return unlink(file) == 0 ? 0 : errno; }), 0);
}

TEST_F(SandboxTest, ASharesServerReachesItsFolderAlone) {
  const std::string share = folder_ + "/share";
  std::filesystem::create_directory(share);
  const std::string inside = share + "/file", moved = share + "/moved", device = share + "/device";
  for (const auto entries : {SandboxNeeds::Entries::kServe, SandboxNeeds::Entries::kRead}) {
    const SandboxNeeds needs{.folder = share, .entries = entries};
    const char* const outside = file_.c_str();
    ExpectAllRefused(needs, {
                                {"socket", [] { return socket(AF_UNIX, SOCK_STREAM, 0); }},
                                {"execve", [] { return syscall(SYS_execve, "/bin/true", 0, 0); }},
                                {"setxattr", [=] { return setxattr(outside, "user.x", "", 0, 0); }},
                                {"chroot", [] { return chroot("/"); }},
                                {"mount", [] { return syscall(SYS_mount, "a", "/", "b", 0, 0); }},
                            });
    const int outcome = Inside(needs, [&] {
      if (open(outside, O_RDONLY) >= 0 || errno != EACCES) return 1;
      if (open("/proc/self/maps", O_RDONLY) >= 0) return 2;
      if (mknod(device.c_str(), S_IFCHR | 0600, 0x103) == 0) return 3;
      const int fd = open(inside.c_str(), O_RDWR | O_CREAT, 0600);
      if (entries == SandboxNeeds::Entries::kRead) return fd >= 0 ? 4 : 0;
      if (fd < 0 || pwrite(fd, "text", 4, 0) != 4 || ftruncate(fd, 1) != 0) return 5;
      if (renameat2(AT_FDCWD, inside.c_str(), AT_FDCWD, moved.c_str(), 0) != 0) return 6;
      // Out of it and into it.
      if (renameat2(AT_FDCWD, moved.c_str(), AT_FDCWD, (folder_ + "/out").c_str(), 0) == 0)
        return 7;
      if (renameat2(AT_FDCWD, outside, AT_FDCWD, inside.c_str(), 0) == 0) return 8;
      return unlink(moved.c_str()) == 0 || unlinkat(AT_FDCWD, moved.c_str(), 0) == 0 ? 0 : 9;
    });
    const bool landlock = syscall(SYS_landlock_create_ruleset, nullptr, 0, 1) > 0;
    if (!landlock) GTEST_SKIP() << "skipped: this kernel has no Landlock";
    EXPECT_EQ(outcome, 0);
  }
}

TEST_F(SandboxTest, AFileMayBeAShare) {
  const SandboxNeeds needs{.folder = file_, .entries = SandboxNeeds::Entries::kServe};
  const char* const file = file_.c_str();
  EXPECT_EQ(Inside(needs,
                   [=] {
                     const int fd = open(file, O_RDWR);
                     return fd >= 0 && pwrite(fd, "x", 1, 0) == 1 ? 0 : errno;
                   }),
            0);
}

}  // namespace
}  // namespace smolvm::sandbox
