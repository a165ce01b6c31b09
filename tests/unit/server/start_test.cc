// How the daemon starts, fails to start, and stops.
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <utility>

#include "tests/unit/server/daemon_fixture.h"

namespace smolvm::server {
namespace {

using StartTest = DaemonTest;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

TEST_F(StartTest, SaysWhenItIsReady) {
  Start({"--memory-limit", "3K", "--emulation-memory", "64m"});
  EXPECT_NE(log_.find("event=ready listen=unix:" + socket_ + " backend=emulation"),
            std::string::npos)
      << log_;
  EXPECT_NE(log_.find("memory_limit=3072 emulation_memory=65536K gpus=unset"), std::string::npos)
      << log_;
}

// `limits` in KiB for ulimit, then the daemon; what it says and its status.
std::pair<std::string, int> RunUnder(const std::string& limits, const std::string& options) {
  FILE* pipe = popen(("(ulimit " + limits + "; exec " DAEMON " --worker " FAKE_WORKER " " +
                      options + ") 2>&1 </dev/null")
                         .c_str(),
                     "re");
  std::string text;
  char bytes[4096];
  while (const size_t got = fread(bytes, 1, sizeof bytes, pipe)) text.append(bytes, got);
  const int status = pclose(pipe);
  return {text, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)};
}

TEST_F(StartTest, TooLittleAddressSpaceIsToldInNumbers) {
  if (kSanitized) GTEST_SKIP() << "skipped: a sanitizer's own memory is beyond any such limit";
  const std::string options =
      "--listen unix:" + socket_ + " --backend emulation --emulation-library good";
  // Of the daemon itself, from where the system's loader can start it.
  for (const char* kib : {"8000", "20000", "65000"}) {
    const auto [text, status] = RunUnder(std::string("-v ") + kib, options);
    EXPECT_EQ(status, 1) << text;
    EXPECT_EQ(text,
              std::string("smolvm-cuda-daemon: it needs 65536 KiB of address space; the address "
                          "space is limited to ") +
                  kib + " KiB here (ulimit -v)\n");
  }
  // Of its workers: the arena, and what else they reserve.
  for (const char* kib : {"65536", "200000", "1400000", "4000000", "67108864", "68400000"}) {
    const auto [text, status] = RunUnder(std::string("-v ") + kib, options);
    EXPECT_EQ(status, 1) << text;
    EXPECT_THAT(
        text, testing::MatchesRegex(
                  "smolvm-cuda-daemon: a worker with the emulation device \\(of 1024 MiB\\) needs "
                  "[0-9]+ KiB of address space; the address space is limited to " +
                  std::string(kib) + " KiB here \\(ulimit -v\\)\n"));
  }
}

TEST_F(StartTest, ALogThatMayNotGrowEndsNothing) {
  const std::string log = folder_ + "/log";
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 2000;
  setrlimit(RLIMIT_FSIZE, &small);
  setenv("SMOLVM_CUDA_LOG_FILE", log.c_str(), 1);
  Launch({"--listen", "unix:" + socket_, "--backend", "emulation", "--emulation-library", "good",
          "--log-level", "debug"});
  unsetenv("SMOLVM_CUDA_LOG_FILE");
  setrlimit(RLIMIT_FSIZE, &before);
  for (int i = 0; i < 3000 && !std::filesystem::exists(socket_); ++i) usleep(10000);
  for (int guest = 0; guest < 20; ++guest) {
    EXPECT_EQ(ConnectAndGreet()->Ask(kFakeEcho, "still here"), "still here");
  }
  EXPECT_EQ(std::filesystem::file_size(log), 2000u);
  Signal(SIGTERM);
  EXPECT_EQ(AwaitExit(), 0);
}

TEST_F(StartTest, TellsTheServiceManager) {
  const int manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{.sun_family = AF_UNIX};
  const std::string path = folder_ + "/notify";
  std::strcpy(address.sun_path, path.c_str());
  ASSERT_EQ(bind(manager, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  setenv("NOTIFY_SOCKET", path.c_str(), 1);
  Start();
  unsetenv("NOTIFY_SOCKET");
  char text[64] = {};
  ASSERT_GT(recv(manager, text, sizeof text - 1, 0), 0);
  EXPECT_STREQ(text, "READY=1");
  Signal(SIGTERM);
  EXPECT_EQ(AwaitExit(), 0);
  std::memset(text, 0, sizeof text);
  ASSERT_GT(recv(manager, text, sizeof text - 1, 0), 0);
  EXPECT_STREQ(text, "STOPPING=1");
  close(manager);
}

TEST_F(StartTest, ListensAtSeveralPlaces) {
  Start({"--listen", "unix:" + folder_ + "/second"});
  EXPECT_EQ(ConnectAndGreet()->Ask(kFakeEcho, "one"), "one");
  socket_ = folder_ + "/second";
  EXPECT_EQ(ConnectAndGreet()->Ask(kFakeEcho, "two"), "two");
}

TEST_F(StartTest, ABusySocketIsOneLine) {
  Start();
  const pid_t first = pid_;
  const int first_log = log_fd_;
  log_.clear();
  Launch({"--listen", "unix:" + socket_});
  EXPECT_EQ(AwaitExit(), 1);
  EXPECT_EQ(log_, "smolvm-cuda-daemon: cannot listen on " + socket_ +
                      ": another process is listening there\n");
  close(log_fd_);
  pid_ = first;
  log_fd_ = first_log;
  EXPECT_EQ(ConnectAndGreet()->Ask(kFakeEcho, "still"), "still");
}

TEST_F(StartTest, ABadOptionIsOneLine) {
  Launch({"--listen", "nowhere"});
  EXPECT_EQ(AwaitExit(), 2);
  EXPECT_EQ(Count("\n"), 1) << log_;
  EXPECT_NE(log_.find("unix:PATH"), std::string::npos) << log_;
}

TEST_F(StartTest, HelpAndVersion) {
  Launch({"--help"});
  EXPECT_EQ(AwaitExit(), 0);
  EXPECT_NE(log_.find("--max-sessions"), std::string::npos);
  Kill();
  Launch({"--version"});
  EXPECT_EQ(AwaitExit(), 0);
  EXPECT_EQ(log_.find("smolvm-cuda-daemon "), 0u);
}

TEST_F(StartTest, NoBackendIsOneLine) {
  Launch({"--listen", "unix:" + socket_, "--backend", "driver", "--driver", "bad"});
  EXPECT_EQ(AwaitExit(), 1);
  EXPECT_EQ(log_, "smolvm-cuda-daemon: library bad is no good\n");
  EXPECT_FALSE(std::filesystem::exists(socket_));
}

TEST_F(StartTest, ABackendThatCrashesIsOneLine) {
  Launch({"--listen", "unix:" + socket_, "--backend", "driver", "--driver", "crash"});
  EXPECT_EQ(AwaitExit(), 1);
  EXPECT_EQ(log_, "smolvm-cuda-daemon: the worker ended with signal=11 signal_name=SEGV\n");
}

TEST_F(StartTest, NoWorkerProgramIsOneLine) {
  Launch({"--listen", "unix:" + socket_, "--worker", folder_ + "/none"});
  EXPECT_EQ(AwaitExit(), 1);
  EXPECT_EQ(log_,
            "smolvm-cuda-daemon: cannot start " + folder_ + "/none: No such file or directory\n");
}

TEST_F(StartTest, AutoTakesTheDriverElseEmulation) {
  Launch({"--listen", "unix:" + socket_, "--driver", "good", "--gpus", "1,0"});
  EXPECT_TRUE(AwaitLog("backend=driver memory_limit=0 emulation_memory=unset gpus=0,1")) << log_;
  Kill();
  Launch({"--listen", "unix:" + socket_, "--driver", "bad", "--emulation-library", "good", "--gpus",
          "nvidia:0"});
  EXPECT_TRUE(AwaitLog("backend=emulation memory_limit=0 emulation_memory=unset gpus=unset"))
      << log_;
}

TEST_F(StartTest, GpusThatTheEmulationDeviceIsNotAreOneLine) {
  Launch({"--listen", "unix:" + socket_, "--driver", "bad", "--emulation-library", "good", "--gpus",
          "1,0"});
  EXPECT_EQ(AwaitExit(), 1);
  EXPECT_EQ(log_,
            "smolvm-cuda-daemon: --gpus 0,1: the emulation device is device 0, and the only one; "
            "driver: library bad is no good\n");
}

TEST_F(StartTest, AVsockDeviceIsStartedWatchedAndEnded) {
  const std::string device = folder_ + "/device";
  Start({"--listen", "vhost-user:" + device});
  EXPECT_NE(log_.find("listen=vhost-user:" + device), std::string::npos) << log_;
  EXPECT_TRUE(std::filesystem::is_socket(device));
  EXPECT_EQ(ConnectAndGreet()->Ask(kFakeEcho, "x"), "x");
  Signal(SIGTERM);
  EXPECT_EQ(AwaitExit(), 0);
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (std::filesystem::exists(device) && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_FALSE(std::filesystem::exists(device));
}

TEST_F(StartTest, ABusyVsockDeviceIsOneLine) {
  std::ofstream(folder_ + "/file") << "precious";
  Launch({"--listen", "vhost-user:" + folder_ + "/file", "--driver", "good"});
  EXPECT_EQ(AwaitExit(), 1);
  EXPECT_EQ(Count("\n"), 1) << log_;
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/file"));
}

TEST_F(StartTest, ASocketLeftByACrashIsReplaced) {
  Start();
  Kill();
  EXPECT_TRUE(std::filesystem::exists(socket_));
  Start();
  EXPECT_EQ(ConnectAndGreet()->Ask(kFakeEcho, "x"), "x");
}

TEST_F(StartTest, TerminationWithoutSessionsIsImmediateAndClean) {
  Start();
  Signal(SIGTERM);
  EXPECT_EQ(AwaitExit(), 0);
  EXPECT_FALSE(std::filesystem::exists(socket_));
}

TEST_F(StartTest, ASocketThatIsNoLongerOursIsKept) {
  Start();
  std::filesystem::remove(socket_);
  std::ofstream(socket_) << "somebody else's";
  Signal(SIGINT);
  EXPECT_EQ(AwaitExit(), 0);
  EXPECT_TRUE(std::filesystem::exists(socket_));
}

}  // namespace
}  // namespace smolvm::server
