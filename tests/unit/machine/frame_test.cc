#include "machine/wire/frame.h"

#include <gtest/gtest.h>

#include "machine/wire/messages.h"

namespace smolvm::machine {
namespace {

TEST(FrameTest, AnySplitGivesTheSameFrames) {
  const std::string bytes = EncodeFrame(FrameType::kStdout, "hello") +
                            EncodeFrame(FrameType::kStdin, "") +
                            EncodeFrame(FrameType::kStderr, std::string(70000, 'x'));
  for (const size_t step : {1ul, 3ul, 7ul, 65536ul, bytes.size()}) {
    FrameParser parser(kMaxFrameFromGuest);
    std::vector<Frame> frames;
    for (size_t at = 0; at < bytes.size(); at += step) {
      parser.Add(std::string_view(bytes).substr(at, step));
      while (auto frame = parser.Next()) frames.push_back(std::move(*frame));
    }
    ASSERT_EQ(frames.size(), 3u) << step;
    EXPECT_EQ(frames[0].payload, "hello");
    EXPECT_EQ(frames[1].type, FrameType::kStdin);
    EXPECT_EQ(frames[2].payload.size(), 70000u);
    EXPECT_FALSE(parser.broken());
  }
}

TEST(FrameTest, TooLongIsTheEnd) {
  FrameParser parser(100);
  parser.Add(EncodeFrame(FrameType::kStdout, std::string(101, 'x')));
  EXPECT_FALSE(parser.Next());
  EXPECT_TRUE(parser.broken());
  EXPECT_EQ(parser.Missing(), 0u);
  parser.Add(EncodeFrame(FrameType::kStdout, "x"));
  EXPECT_FALSE(parser.Next());
}

TEST(FrameTest, MissingNeverReachesTheNextFrame) {
  const std::string bytes = EncodeFrame(FrameType::kHello, "12345678");
  FrameParser parser(100);
  std::string rest = bytes + "what follows";
  while (const size_t missing = parser.Missing()) {
    parser.Add(rest.substr(0, missing));
    rest.erase(0, missing);
  }
  EXPECT_EQ(rest, "what follows");
  EXPECT_EQ(parser.Next()->payload, "12345678");
}

// Every prefix of a message is refused, and none makes the reader read beyond it.
template <typename Decode>
void ExpectPrefixesRefused(const std::string& whole, Decode decode) {
  EXPECT_TRUE(decode(whole));
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(decode(std::string(whole, 0, size))) << size;
  }
  EXPECT_FALSE(decode(whole + "x"));
}

TEST(MessagesTest, TruncatedAtEveryByte) {
  ExecRequest request;
  request.argv = {"sh", "-c", "true"};
  request.env = {"A=1", "B="};
  request.workdir = "/w";
  request.make_workdir = true;
  request.user = "1:2";
  request.stdin_open = true;
  request.rows = 24;
  ExpectPrefixesRefused(EncodeExec(request), DecodeExec);
  ExpectPrefixesRefused(EncodeHello({"secret", "exec", "token"}), DecodeHello);
  ExpectPrefixesRefused(EncodeExit({ExitKind::kNotFound, 0, "x: not found"}), DecodeExit);
  const auto back = DecodeExec(EncodeExec(request));
  EXPECT_EQ(back->argv, request.argv);
  EXPECT_EQ(back->env, request.env);
  EXPECT_TRUE(back->stdin_open);
  EXPECT_FALSE(back->tty);
  EXPECT_EQ(back->rows, 24u);
}

TEST(MessagesTest, HostileCountsCostNothing) {
  std::string payload;
  PutU32(&payload, 0xffffffff);
  EXPECT_FALSE(DecodeExec(payload));
  PutU32(&payload, 0xffffffff);
  EXPECT_FALSE(DecodeExec(payload));
  std::string kind;
  PutU32(&kind, 9);
  PutU32(&kind, 0);
  PutString(&kind, "");
  EXPECT_FALSE(DecodeExit(kind));
}

TEST(MessagesTest, Config) {
  GuestConfig config;
  config.secret = "s";
  config.port = 7001;
  config.hostname = "box";
  config.cuda = true;
  config.shares = {{"/data", true, false}};
  config.modules = {"a.ko", "b.ko"};
  const GuestConfig back = DecodeConfig(EncodeConfig(config));
  EXPECT_EQ(back.port, 7001u);
  EXPECT_TRUE(back.cuda);
  ASSERT_EQ(back.shares.size(), 1u);
  EXPECT_TRUE(back.shares[0].read_only);
  EXPECT_EQ(back.modules, config.modules);
  EXPECT_ANY_THROW(DecodeConfig("{}"));
  for (const char* port : {"-1", "5.5", "5e52", "4294967296", "\"7001\"", "null"}) {
    std::string text = EncodeConfig(config);
    text.replace(text.find("7001"), 4, port);
    EXPECT_ANY_THROW(DecodeConfig(text)) << port;
  }
}

}  // namespace
}  // namespace smolvm::machine
