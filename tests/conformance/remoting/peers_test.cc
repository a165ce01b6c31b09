// Guests and daemons of different ages: what both know works; the rest is NOT_SUPPORTED, and the
// log names both versions.
#include <gmock/gmock.h>

#include <algorithm>

#include "protocol/api/call_ids.h"
#include "tests/conformance/remoting/fixture.h"
#include "tests/conformance/remoting/proxy.h"

namespace smolvm::remoting {
namespace {

using ::testing::HasSubstr;

class Peers : public Remoting {
 protected:
  // The output of a command behind `changes`; the log goes to `log`.
  std::string RunBehind(Changes changes, const std::string& command) {
    const Folder folder;
    const Proxy proxy(folder / "proxy.sock", daemon().socket(), std::move(changes));
    const auto guest =
        StartGuest(folder / "proxy.sock", {command},
                   {"SMOLVM_CUDA_LOG=debug", "SMOLVM_CUDA_LOG_FILE=" + folder / "guest.log"});
    EXPECT_EQ(guest->Wait(20), 0) << guest->output();
    log = Contents(folder / "guest.log");
    return guest->output();
  }
  std::string log;
};

TEST_F(Peers, OlderDaemon) {
  Changes changes;
  changes.reply = [](api::HelloReply& reply) {
    const uint32_t id = api::id::cuMemGetInfo_v2;
    reply.known_calls[id / 8] = static_cast<char>(reply.known_calls[id / 8] & ~(1 << id % 8));
    reply.spec_version = 12345;
  };
  RunBehind(changes, "without_mem_get_info");
  EXPECT_THAT(log, HasSubstr("host_version=12345"));
  EXPECT_THAT(log, HasSubstr("guest_version="));
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
}

TEST_F(Peers, NewerDaemon) {
  Changes changes;
  changes.reply = [](api::HelloReply& reply) {
    reply.known_calls.assign(4096, '\xff');
    reply.spec_version = 99000;
    reply.driver_version = 99000;
  };
  RunBehind(changes, "round_trip");
}

TEST_F(Peers, NewerGuest) {
  Changes changes;
  changes.hello = [](api::Hello& hello) {
    hello.known_calls.assign(hello.known_calls.size(), '\xff');
    hello.spec_version = 99000;
  };
  RunBehind(changes, "round_trip");
}

TEST_F(Peers, OlderGuest) {
  Changes changes;
  changes.hello = [](api::Hello& hello) {
    hello.known_calls.resize(hello.known_calls.size() / 2);
    hello.spec_version = 11000;
  };
  RunBehind(changes, "devices");
}

TEST_F(Peers, AnotherProtocol) {
  Changes changes;
  changes.hello = [](api::Hello& hello) { hello.protocol_version = 77; };
  EXPECT_THAT(RunBehind(changes, "devices"), HasSubstr("init=803"));
  EXPECT_THAT(log, HasSubstr("event=refused"));
}

}  // namespace
}  // namespace smolvm::remoting
