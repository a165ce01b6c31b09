// Daemons that are not there, guests and workers that die.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "protocol/api/call_ids.h"
#include "protocol/api/session.wire.h"
#include "protocol/wire/frame.h"
#include "tests/conformance/remoting/fixture.h"

namespace smolvm::remoting {
namespace {

using ::testing::HasSubstr;

sockaddr_un Address(const std::string& path) {
  sockaddr_un address{AF_UNIX, {}};
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  return address;
}

class Socket {
 public:
  Socket() : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}
  ~Socket() { close(fd_); }
  Socket(const Socket&) = delete;
  void Connect(const std::string& path) {
    const sockaddr_un address = Address(path);
    ASSERT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  void Listen(const std::string& path) {
    const sockaddr_un address = Address(path);
    ASSERT_EQ(bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    ASSERT_EQ(listen(fd_, 4), 0);
  }
  // Whether somebody connects in time.
  bool AwaitConnection(int milliseconds) const {
    pollfd entry{fd_, POLLIN, 0};
    return poll(&entry, 1, milliseconds) == 1;
  }
  // Becomes a session, as a guest would; false when it is refused.
  bool Hello() {
    api::Hello hello;
    hello.protocol_version = wire::kProtocolVersion;
    hello.known_calls.assign((wire::kMaxCallId + 1) / 8, '\xff');
    std::string args;
    Encode(hello, &args);
    wire::FrameHeader header;
    header.call_id = wire::kHello;
    header.args_length = static_cast<uint32_t>(args.size());
    Send(std::string(reinterpret_cast<const char*>(&header), sizeof header) + args);
    if (recv(fd_, &header, sizeof header, MSG_WAITALL) != sizeof header) return false;
    args.resize(header.args_length);
    api::HelloReply reply;
    return recv(fd_, args.data(), args.size(), MSG_WAITALL) == static_cast<ssize_t>(args.size()) &&
           Decode(args, &reply) && reply.status == 0;
  }
  // Whatever comes until the other side hangs up.
  void AwaitEnd() {
    char bytes[4096];
    while (recv(fd_, bytes, sizeof bytes, 0) > 0) {
    }
  }
  void Send(const std::string& bytes) {
    ASSERT_EQ(send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }

 private:
  int fd_;
};

// cuInit fails with 100 in time, and one line says why.
void ExpectNoDevice(const std::string& socket, const std::string& event) {
  const Folder folder;
  const double before = Now();
  const auto guest =
      StartGuest(socket, {"devices"},
                 {"SMOLVM_CUDA_LOG=debug", "SMOLVM_CUDA_LOG_FILE=" + folder / "guest.log"});
  EXPECT_EQ(guest->Wait(), 0);
  // Five seconds, and what a busy machine adds.
  EXPECT_LT(Now() - before, 8);
  EXPECT_THAT(guest->output(), HasSubstr("init=100 counted=3"));
  const std::string log = Contents(folder / "guest.log");
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
  EXPECT_THAT(log, HasSubstr(event));
}

TEST(NoDaemon, AbsentSocket) { ExpectNoDevice("/nonexistent/cuda.sock", "event=no_daemon"); }

TEST(NoDaemon, NobodyListens) {
  const Folder folder;
  { Socket().Listen(folder / "dead.sock"); }
  ExpectNoDevice(folder / "dead.sock", "event=no_daemon");
}

// As while a machine's supervisor starts it again.
TEST(NoDaemon, StartsAgainWhileAProgramInitialises) {
  const Folder folder;
  const std::string path = folder / "restarted.sock";
  { Socket().Listen(path); }
  const auto guest = StartGuest(path, {"devices"});
  usleep(200'000);  // it has found nobody by now, and gives up two seconds later
  unlink(path.c_str());
  Socket restarted;
  restarted.Listen(path);
  EXPECT_TRUE(restarted.AwaitConnection(10'000));
}

TEST(NoDaemon, NeverAnswers) {
  const Folder folder;
  Socket silent;
  silent.Listen(folder / "silent.sock");
  ExpectNoDevice(folder / "silent.sock", "event=no_hello");
}

TEST(NoDaemon, BadEndpoint) {
  const auto guest = StartGuest("", {"devices"}, {"SMOLVM_CUDA_ENDPOINT=carrier-pigeon"});
  EXPECT_EQ(guest->Wait(), 0);
  EXPECT_THAT(guest->output(), HasSubstr("init=100"));
}

class Failure : public Remoting {};

TEST_F(Failure, BrokenClientsDisturbNobody) {
  Socket silent, half, liar;
  silent.Connect(daemon().socket());
  { Socket().Connect(daemon().socket()); }
  half.Connect(daemon().socket());
  half.Send(std::string("\x01\0\0\0\0\0\0\0\x01", 9));
  wire::FrameHeader header;
  header.call_id = wire::kHello;
  header.args_length = ~0u;
  header.bulk_length = ~0ull;
  liar.Connect(daemon().socket());
  liar.Send({reinterpret_cast<const char*>(&header), sizeof header});
  Run({"round_trip"});
}

TEST_F(Failure, HostileFramesEndOneSessionWithALine) {
  const auto other = Guest({"steady"});
  ASSERT_TRUE(other->Await("ready")) << other->output();
  const wire::FrameHeader kHostile[] = {
      {api::id::cuMemAlloc_v2, 0, 1, 1, ~0u, 0},
      {api::id::cuMemAlloc_v2, 0, 1, 1, 0, ~0ull},
      {api::id::cuMemcpyHtoD_v2, wire::kFlagNoReply, 1, 1, 0, uint64_t{1} << 62},
      {wire::kMaxCallId, 0, 1, 1, ~0u, ~0ull},
      {~0u, 0, 1, 1, 0, ~0ull},
      {wire::kHello, 0, 1, 1, 0, 0},
      {api::id::cuMemAlloc_v2, ~0u, 1, 1, 0, 0},
  };
  size_t lines = 0;
  for (const wire::FrameHeader& header : kHostile) {
    Socket hostile;
    hostile.Connect(daemon().socket());
    ASSERT_TRUE(hostile.Hello());
    hostile.Send({reinterpret_cast<const char*>(&header), sizeof header});
    hostile.AwaitEnd();
    ++lines;
    EXPECT_EQ(daemon().AwaitLog("malformed frame", lines), lines) << header.call_id;
  }
  other->CloseInput();
  EXPECT_EQ(other->Wait(), 0) << other->output();
}

TEST_F(Failure, KilledInTheMiddleOfACopy) {
  const auto other = Guest({"steady"});
  ASSERT_TRUE(other->Await("ready")) << other->output();
  const auto guest = Guest({"copy_without_end"});
  ASSERT_TRUE(guest->Await("ready")) << guest->output();
  const pid_t worker = daemon().LastWorker();
  ASSERT_GT(worker, 0);
  usleep(50'000);
  guest->Kill(SIGKILL);
  EXPECT_EQ(guest->Wait(), 128 + SIGKILL);
  EXPECT_TRUE(Daemon::AwaitEnd(worker, 4));  // two seconds, on a machine that is not busy
  other->CloseInput();
  EXPECT_EQ(other->Wait(), 0) << other->output();
}

TEST_F(Failure, WorkerKilledWhileTheGuestWaits) {
  const auto guest = Guest({"lost_while_waiting"});
  ASSERT_TRUE(guest->Await("ready")) << guest->output();
  const auto other = Guest({"steady"});
  ASSERT_TRUE(other->Await("ready")) << other->output();
  // The one whose session is the older.
  const std::string log = daemon().log();
  const size_t last = log.rfind("event=session_started");
  const size_t session = log.rfind("event=session_started", last - 1);
  const pid_t worker = atoi(log.c_str() + log.find(" worker=", session) + strlen(" worker="));
  ASSERT_GT(worker, 0);
  ASSERT_EQ(kill(worker, SIGKILL), 0);
  EXPECT_EQ(guest->Wait(20), 0) << guest->output();
  other->CloseInput();
  EXPECT_EQ(other->Wait(), 0) << other->output();
  Run({"round_trip"});
  EXPECT_THAT(daemon().log(), HasSubstr("signal"));
}

TEST_F(Failure, WorkerKilledWhileTheGuestIsIdle) {
  const Folder folder;
  const auto guest = Guest({"lost_while_idle"}, {"SMOLVM_CUDA_LOG=error",
                                                 "SMOLVM_CUDA_LOG_FILE=" + folder / "guest.log"});
  ASSERT_TRUE(guest->Await("ready")) << guest->output();
  const pid_t worker = daemon().LastWorker();
  ASSERT_EQ(kill(worker, SIGKILL), 0);
  ASSERT_TRUE(Daemon::AwaitEnd(worker, 10));
  guest->CloseInput();
  EXPECT_EQ(guest->Wait(20), 0) << guest->output();
  const std::string log = Contents(folder / "guest.log");
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
  EXPECT_THAT(log, HasSubstr("event=session_lost"));
}

TEST_F(Failure, EveryWorkerKilled) {
  for (const pid_t worker : daemon().Workers()) kill(worker, SIGKILL);
  Run({"round_trip"});
}

}  // namespace
}  // namespace smolvm::remoting
