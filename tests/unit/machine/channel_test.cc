#include "machine/wire/channel.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <thread>

namespace smolvm::machine {
namespace {

struct Pair {
  Pair() {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    a.reset(fds[0]);
    b.reset(fds[1]);
  }
  UniqueFd a, b;
};

TEST(ChannelTest, LargeFramesBothWays) {
  Pair pair;
  const std::string large(3 << 20, 'y');
  std::thread sender([&] {
    Channel channel(std::move(pair.a), kMaxFrameFromHost);
    EXPECT_TRUE(channel.Send(FrameType::kExec, large));
    EXPECT_EQ(channel.WaitFrame(60000)->payload, "ok");
  });
  Channel channel(std::move(pair.b), kMaxFrameFromHost);
  const auto frame = channel.WaitFrame(60000);
  ASSERT_TRUE(frame);
  EXPECT_EQ(frame->payload, large);
  EXPECT_TRUE(channel.Send(FrameType::kReady, "ok"));
  sender.join();
}

TEST(ChannelTest, OneFrameLeavesTheRestInTheSocket) {
  Pair pair;
  const std::string bytes = EncodeFrame(FrameType::kHello, "hi") + "raw";
  ASSERT_EQ(write(pair.a.get(), bytes.data(), bytes.size()), ssize_t(bytes.size()));
  Channel channel(std::move(pair.b), 100);
  EXPECT_TRUE(channel.ReceiveOneFrame());
  EXPECT_EQ(channel.Next()->payload, "hi");
  char rest[8];
  EXPECT_EQ(read(channel.fd(), rest, sizeof rest), 3);
}

TEST(ChannelTest, AClosedPeerIsNoCrash) {
  Pair pair;
  Channel channel(std::move(pair.a), 100);
  pair.b.reset();
  EXPECT_FALSE(channel.WaitFrame(1000));
  EXPECT_FALSE(channel.Send(FrameType::kStdin, "x") && channel.Send(FrameType::kStdin, "x"));
}

}  // namespace
}  // namespace smolvm::machine
