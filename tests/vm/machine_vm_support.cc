#include "tests/vm/machine_vm_support.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

namespace smolvm::machine {

namespace fs = std::filesystem;

void MachineVmTest::SetUp() {
  for (const char* program : {"qemu-system-x86_64", "mkfs.erofs", "busybox", "apt-get"}) {
    if (FindProgram(program).empty()) GTEST_SKIP() << "skipped: " << program << " is not installed";
  }
  fs::create_directories(SMOLVM_TEST_CACHE);
}

void MachineVmTest::TearDown() {
  EXPECT_TRUE(WaitUntilGone()) << "a machine's processes or folder are left";
  for (const pid_t pid : Helpers()) kill(pid, SIGKILL);
}

std::vector<std::pair<std::string, std::string>> MachineVmTest::Environment() const {
  std::vector<std::pair<std::string, std::string>> environment = {
      {"XDG_STATE_HOME", state_}, {"XDG_CACHE_HOME", SMOLVM_TEST_CACHE}};
  environment.insert(environment.end(), more_environment_.begin(), more_environment_.end());
  return environment;
}

ToolResult MachineVmTest::Machine(const Words& words) {
  Words argv = {SMOLVM_PROGRAM, "machine"};
  argv.insert(argv.end(), words.begin(), words.end());
  return RunTool(argv, {.env = Environment()});
}

pid_t MachineVmTest::StartMachine(const Words& words, const fs::path& output) {
  Words argv = {SMOLVM_PROGRAM, "machine"};
  argv.insert(argv.end(), words.begin(), words.end());
  return StartChild(argv, output, "", Environment());
}

bool MachineVmTest::WaitForText(const fs::path& file, const std::string& text) {
  for (int tenths = 0; tenths < 1200; ++tenths) {
    if (FileTail(file, 65536).find(text) != std::string::npos) return true;
    usleep(100000);
  }
  return false;
}

int MachineVmTest::Wait(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

fs::path MachineVmTest::TinyImage() {
  const fs::path tree = fs::path(SMOLVM_TEST_CACHE) / "tiny";
  if (fs::exists(tree)) return tree;
  const fs::path unfinished = folder_.path() / "tiny";
  fs::create_directories(unfinished / "bin");
  fs::copy_file(FindProgram("busybox"), unfinished / "bin/busybox");
  for (const char* name : {"sh", "cat", "echo", "sleep", "ls", "mkdir", "id", "env", "uname", "mv",
                           "wc", "touch", "kill", "chmod", "test", "sync"}) {
    fs::create_symlink("busybox", unfinished / "bin" / name);
  }
  fs::copy(unfinished, tree, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  return tree;
}

std::string MachineVmTest::NameOf(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/cmdline");
  std::string name;
  std::getline(file, name, '\0');
  return fs::path(name).filename();
}

std::vector<pid_t> MachineVmTest::Helpers() const {
  std::vector<pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    std::error_code error;
    if (pid <= 0) continue;
    const std::string cwd = fs::read_symlink(entry.path() / "cwd", error);
    if (!error && cwd.rfind(state_.string(), 0) == 0) found.push_back(pid);
  }
  return found;
}

bool MachineVmTest::WaitUntilGone() const {
  const fs::path machines = state_ / "smolvm/machines";
  for (int tenths = 0; tenths < 300; ++tenths) {
    bool left = !Helpers().empty();
    std::error_code error;
    for (fs::directory_iterator it(machines, error), end; !error && it != end; ++it) {
      left |= it->is_directory();
    }
    if (!left) return true;
    usleep(100000);
  }
  return false;
}

}  // namespace smolvm::machine
