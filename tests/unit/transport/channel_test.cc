#include "protocol/transport/channel.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace smolvm::transport {
namespace {

class ChannelTest : public testing::Test {
 protected:
  void SetUp() override {
    int fds[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    here_ = std::make_unique<Channel>(fds[0]);
    there_ = std::make_unique<Channel>(fds[1]);
  }
  static std::vector<char> Pattern(size_t size) {
    std::vector<char> bytes(size);
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 7 + i / 251);
    return bytes;
  }
  std::unique_ptr<Channel> here_, there_;
};

TEST_F(ChannelTest, ReadsAcrossEveryPieceSize) {
  const std::vector<char> sent = Pattern(300'000);
  std::thread writer([&] { EXPECT_TRUE(here_->Write(sent.data(), sent.size())); });
  std::vector<char> got(sent.size());
  // Pieces below, around and above the sizes at which the read takes another way.
  const size_t pieces[] = {1, 31, 32, 4096, 16'383, 16'384, 65'535, 65'536, 65'537};
  size_t at = 0;
  for (size_t i = 0; at < got.size(); ++i) {
    const size_t size = std::min(pieces[i % std::size(pieces)], got.size() - at);
    ASSERT_TRUE(there_->Read(got.data() + at, size));
    at += size;
  }
  writer.join();
  EXPECT_EQ(got, sent);
}

TEST_F(ChannelTest, GathersPartsOfEverySize) {
  const std::vector<char> sent = Pattern(200'000);
  std::thread writer([&] {
    iovec parts[4] = {{const_cast<char*>(sent.data()), 1},
                      {const_cast<char*>(sent.data()), 0},
                      {const_cast<char*>(sent.data()) + 1, 150'000},
                      {const_cast<char*>(sent.data()) + 150'001, 49'999}};
    EXPECT_TRUE(here_->Write(parts, 4));
  });
  std::vector<char> got(sent.size());
  EXPECT_TRUE(there_->Read(got.data(), got.size()));
  writer.join();
  EXPECT_EQ(got, sent);
}

TEST_F(ChannelTest, SkipDropsExactlyWhatItIsTold) {
  const std::vector<char> sent = Pattern(200'001);
  std::thread writer([&] { EXPECT_TRUE(here_->Write(sent.data(), sent.size())); });
  char first = 0, last = 0;
  EXPECT_TRUE(there_->Read(&first, 1));
  EXPECT_TRUE(there_->Skip(199'999));
  EXPECT_TRUE(there_->Read(&last, 1));
  writer.join();
  EXPECT_EQ(first, sent.front());
  EXPECT_EQ(last, sent.back());
}

TEST_F(ChannelTest, ReadsExactlyAndNothingAhead) {
  const std::vector<char> sent = Pattern(100'000);
  ASSERT_TRUE(here_->Write(sent.data(), 100));
  char first[40];
  ASSERT_TRUE(there_->Read(first, 10));
  EXPECT_EQ(there_->buffered(), 90u);
  // What is buffered already comes first; behind it nothing is taken that was not asked for.
  ASSERT_TRUE(there_->ReadExactly(first, 40));
  ASSERT_TRUE(there_->ReadExactly(first, 40));
  EXPECT_EQ(there_->buffered(), 10u);
  ASSERT_TRUE(here_->Write(sent.data() + 100, 900));
  ASSERT_TRUE(there_->ReadExactly(first, 40));
  EXPECT_EQ(there_->buffered(), 0u);
  EXPECT_EQ(std::vector<char>(first, first + 40),
            std::vector<char>(sent.begin() + 90, sent.begin() + 130));
  // In pieces, as they come.
  std::vector<char> rest(sent.size() - 130);
  std::thread writer([&] {
    for (size_t at = 1000; at < sent.size(); at += 9'900) {
      EXPECT_TRUE(here_->Write(sent.data() + at, 9'900));
    }
  });
  EXPECT_TRUE(there_->ReadExactly(rest.data(), rest.size()));
  writer.join();
  EXPECT_EQ(rest, std::vector<char>(sent.begin() + 130, sent.end()));
}

TEST_F(ChannelTest, ExactlyIsNotLessAtTheEnd) {
  ASSERT_TRUE(here_->Write("abc", 3));
  here_.reset();
  char bytes[4];
  errno = EIO;
  EXPECT_FALSE(there_->ReadExactly(bytes, 4));
  EXPECT_EQ(errno, 0);
}

TEST_F(ChannelTest, SaysWhetherSomethingIsThere) {
  EXPECT_FALSE(there_->Readable());
  ASSERT_TRUE(here_->Write("ab", 2));
  EXPECT_TRUE(there_->Readable());
  EXPECT_EQ(there_->buffered(), 0u);
  char byte;
  ASSERT_TRUE(there_->Read(&byte, 1));
  EXPECT_EQ(there_->buffered(), 1u);
  EXPECT_TRUE(there_->Readable());
  ASSERT_TRUE(there_->Read(&byte, 1));
  EXPECT_FALSE(there_->Readable());
}

TEST_F(ChannelTest, TheEndIsToldApartFromAnError) {
  ASSERT_TRUE(here_->Write("abc", 3));
  here_.reset();
  char bytes[4];
  errno = EIO;
  EXPECT_FALSE(there_->Read(bytes, 4));
  EXPECT_EQ(errno, 0);
  EXPECT_FALSE(there_->Skip(1));
}

TEST_F(ChannelTest, WritingToNobodyFailsWithoutASignal) {
  there_.reset();
  EXPECT_FALSE(here_->Write("x", 1));
  EXPECT_EQ(errno, EPIPE);
  iovec part{const_cast<char*>("x"), 1};
  EXPECT_FALSE(here_->Write(&part, 1));
}

TEST_F(ChannelTest, AnEmulatedRoundTripIsWaitedForOnceAndOnlyByReads) {
  constexpr auto kRoundTrip = std::chrono::milliseconds(200);
  here_->EmulateRoundTrip(200'000);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(here_->Write("a", 1));
  // The answer is there at once; to read it byte by byte costs no further round trip.
  ASSERT_TRUE(there_->Write(std::string(1000, 'b').data(), 1000));
  char byte;
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(here_->Read(&byte, 1));
  const auto taken = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(taken, kRoundTrip);
  EXPECT_LT(taken, 50 * kRoundTrip);  // one for each write would make 100
}

TEST_F(ChannelTest, ShutdownWakesAReaderAndAWriter) {
  std::thread reader([&] {
    char byte;
    EXPECT_FALSE(here_->Read(&byte, 1));
  });
  std::thread writer([&] {
    const std::vector<char> much(16 << 20);
    EXPECT_FALSE(here_->Write(much.data(), much.size()));
  });
  usleep(20'000);
  here_->Shutdown();
  reader.join();
  writer.join();
}

TEST_F(ChannelTest, ANonBlockingDescriptorWorksToo) {
  for (Channel* channel : {here_.get(), there_.get()}) {
    fcntl(channel->fd(), F_SETFL, fcntl(channel->fd(), F_GETFL) | O_NONBLOCK);
  }
  const std::vector<char> sent = Pattern(2'000'000);
  std::thread writer([&] {
    usleep(10'000);
    EXPECT_TRUE(here_->Write(sent.data(), sent.size() / 2));
    iovec part{const_cast<char*>(sent.data()) + sent.size() / 2, sent.size() / 2};
    EXPECT_TRUE(here_->Write(&part, 1));
  });
  std::vector<char> got(sent.size());
  EXPECT_TRUE(there_->Read(got.data(), got.size()));
  writer.join();
  EXPECT_EQ(got, sent);
}

}  // namespace
}  // namespace smolvm::transport
