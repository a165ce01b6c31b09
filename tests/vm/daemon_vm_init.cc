// /init of the guest of daemon_vm_test: loads the modules, runs /bin/cuda-probe with the guest's
// CUDA library, and ends the machine with the
// probe's exit status, plus one, so that it is told from a failure of QEMU itself.
#include <fcntl.h>
#include <sys/io.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace {

constexpr uint16_t kDebugExitPort = 0xf4;

void LoadModules() {
  std::FILE* list = std::fopen("/modules/list", "r");
  char name[256];
  while (list != nullptr && std::fscanf(list, "%255s", name) == 1) {
    const int fd = open(name, O_RDONLY);
    if (syscall(SYS_finit_module, fd, "", 0) != 0 && errno != EEXIST) {
      std::printf("guest: module %s: %s\n", name, std::strerror(errno));
    }
    close(fd);
  }
  if (list != nullptr) std::fclose(list);
}

int RunProbe() {
  const pid_t pid = fork();
  if (pid == 0) {
    const char* argv[] = {"cuda-probe", "--elements", "1048576", nullptr};
    // No endpoint: the default one is the host's port 7000.
    const char* env[] = {"LD_LIBRARY_PATH=/opt/smolvm-cuda", nullptr};
    execve("/bin/cuda-probe", const_cast<char**>(argv), const_cast<char**>(env));
    std::printf("guest: the probe: %s\n", std::strerror(errno));
    _exit(126);
  }
  int status = 0;
  if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) return 125;
  return WEXITSTATUS(status);
}

}  // namespace

int main() {
  mkdir("/dev", 0755);
  mkdir("/tmp", 01777);
  mkdir("/proc", 0755);
  mount("devtmpfs", "/dev", "devtmpfs", 0, nullptr);
  mount("proc", "/proc", "proc", 0, nullptr);
  const int console = open("/dev/console", O_RDWR);
  for (int fd = 0; console >= 0 && fd < 3; ++fd) dup2(console, fd);
  LoadModules();
  const int status = RunProbe();
  std::printf("guest: the probe ended with %d\n", status);
  std::fflush(stdout);
  if (ioperm(kDebugExitPort, 1, 1) == 0) outb(static_cast<uint8_t>(status + 1), kDebugExitPort);
  return 1;
}
