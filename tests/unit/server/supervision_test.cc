// Workers that crash, hang or are killed; a daemon that ends.
#include <fstream>

#include "tests/unit/server/daemon_fixture.h"

namespace smolvm::server {
namespace {

using SupervisionTest = DaemonTest;

TEST_F(SupervisionTest, ACrashEndsThatSessionAtOnceAndIsLogged) {
  Start();
  const auto one = ConnectAndGreet(), two = ConnectAndGreet();
  EXPECT_EQ(one->Ask(kFakeCrash), "gone");
  EXPECT_EQ(two->Ask(kFakeEcho, "x"), "x");
  EXPECT_TRUE(AwaitLog("event=worker_crashed session=1")) << log_;
  EXPECT_NE(log_.find("signal=11 signal_name=SEGV"), std::string::npos) << log_;
  EXPECT_EQ(ConnectAndGreet()->Ask(kFakeEcho, "y"), "y");
}

TEST_F(SupervisionTest, SoDoesAnUnexpectedExit) {
  Start();
  EXPECT_EQ(ConnectAndGreet()->Ask(kFakeExit), "gone");
  EXPECT_TRUE(AwaitLog("exit=7")) << log_;
}

TEST_F(SupervisionTest, SoDoesAKill) {
  Start();
  const auto guest = ConnectAndGreet();
  kill(std::stoi(guest->Ask(kFakePid)), SIGKILL);
  EXPECT_TRUE(guest->Ended());
  EXPECT_TRUE(AwaitLog("signal=9 signal_name=KILL")) << log_;
}

TEST_F(SupervisionTest, TheWorkerEndsWithItsGuestWhateverItIsDoing) {
  Start();
  for (const uint32_t call : {0u, uint32_t{kFakeBlock}, uint32_t{kFakeStuck}}) {
    auto guest = ConnectAndGreet();
    const pid_t pid = std::stoi(guest->Ask(kFakePid));
    if (call != 0) guest->Send(GuestEnd::Frame(call, ""));
    guest.reset();
    EXPECT_TRUE(AwaitGone(pid)) << call;
  }
  EXPECT_TRUE(AwaitLog("event=session_ended", 3)) << log_;
}

// The first child of the daemon that shows up, or -1.
pid_t FirstChild(pid_t daemon) {
  const std::string path =
      "/proc/" + std::to_string(daemon) + "/task/" + std::to_string(daemon) + "/children";
  for (int k = 0; k < 2000; ++k) {
    pid_t child = -1;
    if (std::ifstream(path) >> child && child > 0) return child;
    usleep(1000);
  }
  return -1;
}

TEST_F(SupervisionTest, AWorkerThatIsKilledBeforeAnyWasReadyIsReplaced) {
  Launch({"--listen", "unix:" + socket_, "--driver", "slow", "--workers-ready", "1"});
  const pid_t first = FirstChild(pid_);
  ASSERT_GT(first, 0);
  ASSERT_EQ(kill(first, SIGKILL), 0);
  EXPECT_TRUE(AwaitLog("event=ready")) << log_;
  EXPECT_EQ(ConnectAndGreet()->Ask(kFakeEcho, "x"), "x");
}

TEST_F(SupervisionTest, AReadyWorkerThatIsKilledIsReplaced) {
  Start({"--workers-ready", "1", "--log-level", "debug"});
  ASSERT_TRUE(AwaitLog("event=worker_ready worker="));
  const size_t at = log_.find("event=worker_ready worker=") + 26;
  kill(std::stoi(log_.substr(at)), SIGKILL);
  ASSERT_TRUE(AwaitLog("event=worker_lost")) << log_;
  EXPECT_EQ(ConnectAndGreet()->Ask(kFakeEcho, "x"), "x");
}

TEST_F(SupervisionTest, AGuestWhoseWorkerDiesBeforeItTookItGetsAnother) {
  Start({"--workers-ready", "1", "--log-level", "debug"});
  ASSERT_TRUE(AwaitLog("event=worker_ready worker="));
  const pid_t worker = std::stoi(log_.substr(log_.find("event=worker_ready worker=") + 26));
  kill(worker, SIGSTOP);  // as if it were dying: it is given the guest, and does not take it
  const auto guest = Connect();
  guest->Send(GuestEnd::HelloFrame());
  ASSERT_TRUE(AwaitLog("event=session_started session=1 worker=" + std::to_string(worker))) << log_;
  kill(worker, SIGKILL);
  EXPECT_EQ(guest->HelloReply(), 0u);
  EXPECT_EQ(guest->Ask(kFakeEcho, "x"), "x");
  EXPECT_TRUE(AwaitLog("event=worker_lost worker=" + std::to_string(worker))) << log_;
}

TEST_F(SupervisionTest, ABackendThatStopsWorkingIsTriedAgain) {
  const std::string library = folder_ + "/library";
  std::ofstream(library) << "x";
  Launch({"--listen", "unix:" + socket_, "--driver", library, "--backend", "driver",
          "--workers-ready", "1"});
  ASSERT_TRUE(AwaitLog("event=ready"));
  std::filesystem::remove(library);
  const auto first = ConnectAndGreet();
  ASSERT_TRUE(AwaitLog("event=worker_failed")) << log_;
  const auto second = Connect();
  second->Send(GuestEnd::HelloFrame());
  std::ofstream(library) << "x";
  EXPECT_EQ(second->HelloReply(), 0u);
}

TEST_F(SupervisionTest, WorkersHaveNothingOpenOfTheDaemons) {
  Start({"--listen", "unix:" + folder_ + "/second"});
  std::vector<std::unique_ptr<GuestEnd>> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(Connect());
  ConnectAndGreet();
  // Standard streams, the control socket, the log, two memory files, the session's socket, and the
  // session's eventfd.
  EXPECT_LE(std::stoi(ConnectAndGreet()->Ask(kFakeOpenFds)), 9);
}

TEST_F(SupervisionTest, DrainingLetsSessionsEnd) {
  Start({"--drain-timeout", "600"});
  auto guest = ConnectAndGreet();
  Signal(SIGTERM);
  ASSERT_TRUE(AwaitLog("event=draining sessions=1")) << log_;
  std::string error;
  EXPECT_EQ(
      transport::Connect({.kind = transport::Endpoint::Kind::kUnix, .path = socket_}, 100, &error),
      -1);
  EXPECT_EQ(guest->Ask(kFakeEcho, "still served"), "still served");
  guest.reset();
  EXPECT_EQ(AwaitExit(), 0);
}

TEST_F(SupervisionTest, DrainingHasALimit) {
  Start({"--drain-timeout", "0"});
  const auto guest = ConnectAndGreet();
  const pid_t pid = std::stoi(guest->Ask(kFakePid));
  Signal(SIGTERM);
  EXPECT_EQ(AwaitExit(), 0);
  EXPECT_TRUE(guest->Ended());
  EXPECT_TRUE(AwaitGone(pid));
}

TEST_F(SupervisionTest, ASecondSignalEndsItAtOnce) {
  Start({"--drain-timeout", "600"});
  const auto guest = ConnectAndGreet();
  Signal(SIGTERM);
  ASSERT_TRUE(AwaitLog("event=draining"));
  Signal(SIGTERM);
  EXPECT_EQ(AwaitExit(), 0);
  EXPECT_TRUE(guest->Ended());
}

TEST_F(SupervisionTest, AKilledDaemonLeavesNoWorker) {
  Start();
  const auto guest = ConnectAndGreet();
  const pid_t pid = std::stoi(guest->Ask(kFakePid));
  Signal(SIGKILL);
  EXPECT_TRUE(guest->Ended());
  EXPECT_TRUE(AwaitGone(pid));
}

}  // namespace
}  // namespace smolvm::server
