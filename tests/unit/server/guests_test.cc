// Guests, well-behaved and not.
#include <sys/socket.h>

#include "tests/unit/server/daemon_fixture.h"

namespace smolvm::server {
namespace {

using GuestsTest = DaemonTest;

TEST_F(GuestsTest, AHelloIsAnswered) {
  Start();
  const auto guest = ConnectAndGreet();
  EXPECT_EQ(guest->reply().protocol_version, wire::kProtocolVersion);
  EXPECT_EQ(guest->reply().driver_version, 13000);
  EXPECT_EQ(guest->reply().callback_token.size(), 16u);
  ASSERT_EQ(guest->reply().devices.size(), 1u);
  EXPECT_EQ(guest->reply().devices[0].name, "fake device");
  EXPECT_EQ(guest->Ask(kFakeEcho, "hello"), "hello");
}

TEST_F(GuestsTest, WhatFollowsTheHelloAtOnceIsNotLost) {
  Start();
  const auto guest = Connect();
  guest->Send(GuestEnd::HelloFrame() + GuestEnd::Frame(kFakeEcho, "eager", 5));
  EXPECT_EQ(guest->HelloReply(), 0u);
  wire::FrameHeader header;
  std::string args;
  ASSERT_TRUE(guest->Receive(&header, &args));
  EXPECT_EQ(args, "eager");
}

TEST_F(GuestsTest, AHelloInSingleBytes) {
  Start();
  const auto guest = Connect();
  for (const char c : GuestEnd::HelloFrame()) guest->Send(std::string(1, c));
  EXPECT_EQ(guest->HelloReply(), 0u);
  EXPECT_EQ(guest->Ask(kFakeEcho, "x"), "x");
}

TEST_F(GuestsTest, SessionsHaveProcessesOfTheirOwn) {
  Start();
  const auto one = ConnectAndGreet(), two = ConnectAndGreet();
  EXPECT_NE(one->Ask(kFakePid), two->Ask(kFakePid));
  EXPECT_NE(one->reply().callback_token, two->reply().callback_token);
}

TEST_F(GuestsTest, SixteenAtOnceAllSucceed) {
  Start({"--workers-ready", "1"});
  std::vector<std::unique_ptr<GuestEnd>> guests;
  for (int i = 0; i < 16; ++i) {
    guests.push_back(Connect());
    guests.back()->Send(GuestEnd::HelloFrame());
  }
  for (const auto& guest : guests) {
    ASSERT_EQ(guest->HelloReply(), 0u);
    EXPECT_EQ(guest->Ask(kFakeEcho, "x"), "x");
  }
}

TEST_F(GuestsTest, NoMoreSessionsThanAllowed) {
  Start({"--max-sessions", "2"});
  auto one = ConnectAndGreet(), two = ConnectAndGreet();
  const auto three = Connect();
  EXPECT_EQ(three->Hello(), 2u);
  EXPECT_NE(three->reply().message.find("2 sessions"), std::string::npos);
  EXPECT_TRUE(three->Ended());
  one.reset();
  ASSERT_TRUE(AwaitLog("event=session_ended")) << log_;
  EXPECT_EQ(ConnectAndGreet()->Ask(kFakeEcho, "x"), "x");
  EXPECT_EQ(two->Ask(kFakeEcho, "y"), "y");
}

TEST_F(GuestsTest, AnotherProtocolIsRefusedWithWords) {
  Start();
  const auto guest = Connect();
  api::Hello hello;
  hello.protocol_version = wire::kProtocolVersion + 1;
  std::string args;
  api::Encode(hello, &args);
  guest->Send(GuestEnd::Frame(wire::kHello, args));
  EXPECT_EQ(guest->HelloReply(), 803u);
  EXPECT_NE(guest->reply().message.find("protocol"), std::string::npos);
}

TEST_F(GuestsTest, OnePeerLeavesRoomForOthers) {
  Start({"--max-sessions", "8", "--max-sessions-per-peer", "2"});
  const auto one = ConnectAndGreet(), two = ConnectAndGreet();
  EXPECT_EQ(one->Ask(kFakeEcho, "x"), "x");
  EXPECT_EQ(two->Ask(kFakeEcho, "x"), "x");
  const auto three = Connect();
  EXPECT_EQ(three->Hello(), 2u);
  EXPECT_NE(three->reply().message.find("2 sessions of this peer (uid:"), std::string::npos);
}

TEST_F(GuestsTest, AHelloCutOffAtEveryByteDisturbsNobody) {
  Start();
  const auto other = ConnectAndGreet();
  const std::string hello = GuestEnd::HelloFrame();
  for (size_t size = 0; size < hello.size(); ++size) {
    Connect()->Send(hello.substr(0, size));
    ASSERT_EQ(other->Ask(kFakeEcho, "x"), "x");
  }
  EXPECT_EQ(ConnectAndGreet()->Ask(kFakeEcho, "y"), "y");
}

TEST_F(GuestsTest, HalfAHelloIsEndedInTime) {
  Start();
  const auto silent = Connect(), half = Connect();
  half->Send(GuestEnd::HelloFrame().substr(0, 40));
  const auto other = ConnectAndGreet();
  EXPECT_EQ(other->Ask(kFakeEcho, "x"), "x");
  EXPECT_TRUE(silent->Ended());
  EXPECT_TRUE(half->Ended());
  EXPECT_EQ(other->Ask(kFakeEcho, "x"), "x");
}

TEST_F(GuestsTest, GarbageIsDropped) {
  Start();
  wire::FrameHeader hello;
  hello.call_id = wire::kHello;
  std::vector<std::string> garbage{std::string(1000, '\xff'), std::string(1000, '\0'),
                                   "GET / HTTP/1.1\r\nHost: somewhere.example\r\n\r\n",
                                   GuestEnd::Frame(kFakeEcho, "no hello first")};
  const auto add = [&](wire::FrameHeader header) {
    garbage.emplace_back(reinterpret_cast<const char*>(&header), sizeof header);
  };
  hello.args_length = 64 * 1024 + 1;
  add(hello);
  hello.args_length = UINT32_MAX;
  add(hello);
  hello.args_length = 0;
  hello.bulk_length = UINT64_MAX;
  add(hello);
  for (const std::string& bytes : garbage) {
    const auto guest = Connect();
    guest->Send(bytes);
    EXPECT_TRUE(guest->Ended());
  }
  const auto malformed = Connect();
  malformed->Send(GuestEnd::Frame(wire::kHello, "\xff\xff\xff\xff"));
  EXPECT_EQ(malformed->HelloReply(), 1u);
  EXPECT_EQ(ConnectAndGreet()->Ask(kFakeEcho, "x"), "x");
}

TEST_F(GuestsTest, AFloodOfSilentConnectionsKeepsNobodyOut) {
  Start();
  std::vector<std::unique_ptr<GuestEnd>> flood;
  for (int i = 0; i < 700; ++i) flood.push_back(Connect());
  EXPECT_EQ(ConnectAndGreet()->Ask(kFakeEcho, "x"), "x");
  flood.clear();
  EXPECT_EQ(ConnectAndGreet()->Ask(kFakeEcho, "y"), "y");
}

TEST_F(GuestsTest, AFloodOfSessionsEndsInOrder) {
  Start({"--max-sessions", "4"});
  for (int i = 0; i < 40; ++i) {
    const auto guest = Connect();
    guest->Send(GuestEnd::HelloFrame());  // and is gone, before or after it gets a worker
  }
  for (int i = 0;; ++i) {
    ASSERT_LT(i, 1000);
    const auto guest = Connect();
    if (guest->Hello() == 0) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

TEST_F(GuestsTest, HostFunctionsOverASecondConnection) {
  Start();
  const auto guest = ConnectAndGreet();
  const auto line = Connect();
  ASSERT_EQ(line->Hello(guest->reply().callback_token), 0u);
  std::thread function([&] {
    wire::FrameHeader header;
    std::string args;
    ASSERT_TRUE(line->Receive(&header, &args));
    EXPECT_EQ(header.call_id, wire::kHostCallback);
    EXPECT_EQ(args, "callback");
    header.flags = wire::kFlagReply;
    header.args_length = 0;
    line->Send(std::string(reinterpret_cast<const char*>(&header), sizeof header));
  });
  guest->Ask(kFakeCallGuest, "callback");
  EXPECT_EQ(guest->status(), 0u);
  function.join();
}

TEST_F(GuestsTest, AGuessedTokenIsRefused) {
  Start();
  const auto guest = ConnectAndGreet();
  std::string token = guest->reply().callback_token;
  token[15] = static_cast<char>(token[15] ^ 1);
  for (const std::string& guess : {token, std::string("x"), token.substr(0, 15)}) {
    const auto line = Connect();
    EXPECT_EQ(line->Hello(guess), 800u);
    EXPECT_TRUE(line->Ended());
  }
}

}  // namespace
}  // namespace smolvm::server
