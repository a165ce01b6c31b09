// The agent and the host's end of it, without a machine: the real agent binary serves commands on
// this host over a Unix socket.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <chrono>
#include <fstream>

#include "machine/supervise/agent_link.h"
#include "machine/supervise/message.h"
#include "machine/util/files.h"
#include "machine/util/tool.h"

namespace smolvm::machine {
namespace {

namespace fs = std::filesystem;

class AgentTest : public ::testing::Test {
 protected:
  void SetUp() override {
    link_ = std::make_unique<AgentLink>(
        ListenIn(folder_.path(), "agent.sock", SOCK_STREAM), 3, "secret",
        AgentLink::Handlers{[this] { ready_ = true; }, [](const std::string&) {},
                            [this](size_t index, UniqueFd) { share_ = index; },
                            [this] { lost_ = true; }});
  }
  void TearDown() override {
    link_.reset();  // the agent ends when its launcher is gone
    if (agent_ > 0) waitpid(agent_, nullptr, 0);
  }

  void StartAgent(const std::string& secret = "secret") {
    agent_ = StartChild(
        {SMOLVM_AGENT, "--connect", folder_.path() / "agent.sock", "--secret", secret}, "", "");
  }

  // Serves the link until `done`; false after a minute.
  template <typename Done>
  bool Until(Done done) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!done()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::vector<pollfd> fds;
      link_->AddTo(&fds);
      poll(fds.data(), fds.size(), 100);
      link_->Handle(fds.data());
    }
    return true;
  }

  Channel Open() {
    UniqueFd fd;
    link_->OpenExec([&](UniqueFd opened) { fd = std::move(opened); });
    EXPECT_TRUE(Until([&] { return fd.valid(); }));
    return Channel(std::move(fd), kMaxFrameFromGuest);
  }

  static ExecRequest Shell(const std::string& script) {
    ExecRequest request;
    request.argv = {"/bin/sh", "-c", script};
    request.env = {"PATH=/usr/bin:/bin", "GIVEN=yes"};
    return request;
  }

  struct Outcome {
    std::string out, err;
    std::optional<ExitReport> report;
  };
  static Outcome Collect(Channel* channel) {
    Outcome outcome;
    while (const auto frame = channel->WaitFrame(60000)) {
      if (frame->type == FrameType::kStdout) outcome.out += frame->payload;
      if (frame->type == FrameType::kStderr) outcome.err += frame->payload;
      if (frame->type == FrameType::kExit) {
        outcome.report = DecodeExit(frame->payload);
        break;
      }
    }
    return outcome;
  }
  Outcome Run(const ExecRequest& request) {
    Channel channel = Open();
    channel.Send(FrameType::kExec, EncodeExec(request));
    return Collect(&channel);
  }

  const TempFolder folder_{fs::temp_directory_path() / "smolvm-agent-test"};
  std::unique_ptr<AgentLink> link_;
  pid_t agent_ = -1;
  bool ready_ = false, lost_ = false;
  size_t share_ = 99;
};

TEST_F(AgentTest, StreamsAndExitStatus) {
  StartAgent();
  ASSERT_TRUE(Until([&] { return ready_; }));
  const Outcome outcome = Run(Shell("echo out $GIVEN; echo err >&2; pwd; exit 7"));
  EXPECT_EQ(outcome.out, "out yes\n" + fs::current_path().string() + "\n");
  EXPECT_EQ(outcome.err, "err\n");
  ASSERT_TRUE(outcome.report);
  EXPECT_EQ(outcome.report->kind, ExitKind::kExited);
  EXPECT_EQ(outcome.report->value, 7u);
}

// A guest that was taken over: it opens the control connection, and reads nothing from it.
TEST_F(AgentTest, AGuestThatDoesNotReadHoldsNothingUp) {
  const UniqueFd guest = ConnectIn(folder_.path(), "agent.sock", SOCK_STREAM);
  const std::string hello = EncodeFrame(FrameType::kHello, EncodeHello({"secret", "control", ""}));
  ASSERT_EQ(send(guest.get(), hello.data(), hello.size(), 0), static_cast<ssize_t>(hello.size()));
  ASSERT_TRUE(Until([&] { return link_->connected(); }));
  for (int k = 0; k < 20000; ++k) link_->OpenExec([](UniqueFd) {});
  link_->PowerOff();
  EXPECT_TRUE(Until([&] { return lost_; }));
}

TEST_F(AgentTest, SignalsEndTheWholeGroup) {
  StartAgent();
  ASSERT_TRUE(Until([&] { return ready_; }));
  Channel channel = Open();
  channel.Send(FrameType::kExec, EncodeExec(Shell("echo up; sleep 1000; echo never")));
  EXPECT_EQ(channel.WaitFrame(60000)->payload, "up\n");
  std::string payload;
  PutU32(&payload, SIGTERM);
  channel.Send(FrameType::kSignal, payload);
  const Outcome outcome = Collect(&channel);
  ASSERT_TRUE(outcome.report);
  EXPECT_EQ(outcome.report->kind, ExitKind::kSignalled);
  EXPECT_EQ(outcome.report->value, uint32_t{SIGTERM});
}

TEST_F(AgentTest, InputAndItsEnd) {
  StartAgent();
  ASSERT_TRUE(Until([&] { return ready_; }));
  Channel channel = Open();
  ExecRequest request = Shell("wc -c; cat /dev/null");
  request.stdin_open = true;
  channel.Send(FrameType::kExec, EncodeExec(request));
  for (int i = 0; i < 40; ++i) channel.Send(FrameType::kStdin, std::string(50000, 'x'));
  channel.Send(FrameType::kStdin, "");
  EXPECT_EQ(Collect(&channel).out, "2000000\n");
  // All of it in one piece with the request.
  Channel quick = Open();
  const std::string bytes = EncodeFrame(FrameType::kExec, EncodeExec(request)) +
                            EncodeFrame(FrameType::kStdin, "abc") +
                            EncodeFrame(FrameType::kStdin, "");
  ASSERT_EQ(write(quick.fd(), bytes.data(), bytes.size()), ssize_t(bytes.size()));
  EXPECT_EQ(Collect(&quick).out, "3\n");
  // Without an open input the command sees its end at once.
  EXPECT_EQ(Run(Shell("wc -c")).out, "0\n");
}

TEST_F(AgentTest, LargeOutputArrivesWhole) {
  StartAgent();
  ASSERT_TRUE(Until([&] { return ready_; }));
  const Outcome outcome = Run(Shell("head -c 20000000 /dev/zero; echo end >&2"));
  EXPECT_EQ(outcome.out.size(), 20000000u);
  EXPECT_EQ(outcome.err, "end\n");
}

TEST_F(AgentTest, ManyAtOnce) {
  StartAgent();
  ASSERT_TRUE(Until([&] { return ready_; }));
  std::vector<Channel> channels;
  for (int i = 0; i < 8; ++i) {
    channels.push_back(Open());
    channels.back().Send(FrameType::kExec, EncodeExec(Shell("read x; echo " + std::to_string(i))));
  }
  for (int i = 7; i >= 0; --i) EXPECT_EQ(Collect(&channels[i]).out, std::to_string(i) + "\n");
}

TEST_F(AgentTest, ATerminal) {
  StartAgent();
  ASSERT_TRUE(Until([&] { return ready_; }));
  ExecRequest request = Shell("test -t 0 && test -t 1 && stty size");
  request.tty = true;
  request.stdin_open = true;
  request.rows = 33;
  request.columns = 77;
  const Outcome outcome = Run(request);
  EXPECT_EQ(outcome.out, "33 77\r\n");
  EXPECT_EQ(outcome.report->value, 0u);
}

TEST_F(AgentTest, WhatCannotBeRun) {
  StartAgent();
  ASSERT_TRUE(Until([&] { return ready_; }));
  ExecRequest request = Shell("");
  request.argv = {"smolvm-no-such-program"};
  EXPECT_EQ(Run(request).report->kind, ExitKind::kNotFound);
  request.argv = {"/etc/passwd"};
  EXPECT_EQ(Run(request).report->kind, ExitKind::kCannotRun);
  const fs::path script = folder_.path() / "script";
  std::ofstream(script) << "#!/no/such/interpreter\n";
  fs::permissions(script, fs::perms::owner_all);
  request.argv = {script};
  const Outcome outcome = Run(request);
  EXPECT_EQ(outcome.report->kind, ExitKind::kCannotRun);
  EXPECT_THAT(outcome.report->message, ::testing::HasSubstr("interpreter"));
  request = Shell("true");
  request.user = "smolvm-no-such-user";
  EXPECT_EQ(Run(request).report->kind, ExitKind::kCannotRun);
}

TEST_F(AgentTest, AMissingWorkingFolderIsMadeOnlyWhereAsked) {
  StartAgent();
  ASSERT_TRUE(Until([&] { return ready_; }));
  const fs::path missing = folder_.path() / "missing";
  ExecRequest request = Shell("pwd");
  request.workdir = missing;
  Outcome outcome = Run(request);
  EXPECT_EQ(outcome.report->kind, ExitKind::kCannotRun);
  EXPECT_EQ(outcome.report->message,
            "/bin/sh: the working folder " + missing.string() + ": No such file or directory");
  EXPECT_FALSE(fs::exists(missing));
  request.make_workdir = true;
  EXPECT_EQ(Run(request).out, missing.string() + "\n");
}

TEST_F(AgentTest, ACommandEndsWithItsConnection) {
  StartAgent();
  ASSERT_TRUE(Until([&] { return ready_; }));
  const fs::path pid_file = folder_.path() / "pid";
  {
    Channel channel = Open();
    channel.Send(FrameType::kExec, EncodeExec(Shell("echo $$ > " + pid_file.string() +
                                                    "; echo up; exec sleep 1000")));
    EXPECT_EQ(channel.WaitFrame(60000)->payload, "up\n");
  }
  const pid_t pid = std::stoi(ReadFile(pid_file));
  EXPECT_TRUE(Until([&] { return kill(pid, 0) != 0; }));
}

TEST_F(AgentTest, StrangersAreTurnedAway) {
  StartAgent("wrong");
  const auto dial = [&](const std::string& bytes) {
    UniqueFd fd = ConnectIn(folder_.path(), "agent.sock", SOCK_STREAM);
    EXPECT_EQ(write(fd.get(), bytes.data(), bytes.size()), ssize_t(bytes.size()));
    return fd;
  };
  const auto closed = [](const UniqueFd& fd) {
    char byte;
    const ssize_t n = recv(fd.get(), &byte, 1, MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno == ECONNRESET);
  };
  for (const std::string& bytes :
       {EncodeFrame(FrameType::kHello, EncodeHello({"guess", "control", ""})),
        EncodeFrame(FrameType::kHello, EncodeHello({"secret", "exec", "no such token"})),
        EncodeFrame(FrameType::kHello, EncodeHello({"secret", "share", "x"})),
        EncodeFrame(FrameType::kReady, ""), std::string(5, '\xff')}) {
    const UniqueFd fd = dial(bytes);
    EXPECT_TRUE(Until([&] { return closed(fd); }));
  }
  EXPECT_TRUE(Until([&] { return waitpid(agent_, nullptr, WNOHANG) == agent_; }));
  agent_ = -1;
  EXPECT_FALSE(ready_);
  EXPECT_FALSE(link_->connected());
  EXPECT_EQ(share_, 99u);
}

}  // namespace
}  // namespace smolvm::machine
