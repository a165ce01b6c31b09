// Every call, cut at every byte and with hostile numbers, against a session of its own: the session
// may end, or answer with an error; the process goes on, and nothing is allocated from a number on
// the wire.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "host-daemon/dispatch/dispatch_table.h"
#include "tests/loopback/host.h"

namespace smolvm::loopback {
namespace {

// Sends one frame to a fresh session over the recording dispatcher, closes, and waits for the
// session's end.
void SendTo(session::Handler& handler, wire::FrameHeader header, const std::string& body) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  std::thread server([&, fd = ends[1]] {
    session::Session session(std::make_unique<transport::Channel>(fd), handler, {});
    session.Run();
  });
  std::string frame(sizeof header, '\0');
  wire::StoreFrameHeader(header, frame.data());
  frame += body;
  EXPECT_GE(send(ends[0], frame.data(), frame.size(), MSG_NOSIGNAL), 0);
  shutdown(ends[0], SHUT_WR);
  char sink[4096];
  while (read(ends[0], sink, sizeof sink) > 0) {
  }
  close(ends[0]);
  server.join();
}

class Hostile : public Loopback {};

// Field numbers 1 to 10, each as a huge varint: what a decoder must survive whatever the message
// is.
std::string HugeNumbers() {
  std::string args;
  for (char field = 1; field <= 10; ++field)
    args += std::string(1, static_cast<char>(field << 3)) + std::string(9, '\xff') + '\x01';
  return args;
}

// The same fields as length-delimited, claiming more bytes than there are.
std::string HugeLengths() {
  std::string args;
  args += static_cast<char>(1 << 3 | 2);
  args += std::string("\xff\xff\xff\xff\x0f", 5);
  return args + "tail";
}

TEST_F(Hostile, EveryCallCutAtEveryByte) {
  const std::string args = HugeNumbers();
  for (size_t i = 0; i < dispatch::kCallCount; ++i) {
    for (const size_t length :
         {size_t{0}, size_t{1}, size_t{5}, size_t{11}, args.size() - 1, args.size()}) {
      wire::FrameHeader header{dispatch::kCalls[i].id, 0, 1, 1, static_cast<uint32_t>(length), 0};
      SendTo(host.dispatcher(), header, args.substr(0, length));
    }
    wire::FrameHeader header{
        dispatch::kCalls[i].id, 0, 1, 1, static_cast<uint32_t>(HugeLengths().size()), 0};
    SendTo(host.dispatcher(), header, HugeLengths());
  }
}

TEST_F(Hostile, LaunchesCutAtEveryByteOfHeaderAndArguments) {
  std::string whole(sizeof(wire::FrameHeader), '\0');
  const std::string args = HugeNumbers();
  wire::StoreFrameHeader({0x0600, 0, 1, 1, static_cast<uint32_t>(args.size()), 16}, whole.data());
  whole += args + std::string(16, 'p');
  for (size_t length = 0; length <= whole.size(); ++length) {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    ASSERT_EQ(send(ends[0], whole.data(), length, MSG_NOSIGNAL), static_cast<ssize_t>(length));
    shutdown(ends[0], SHUT_WR);
    session::Session session(std::make_unique<transport::Channel>(ends[1]), host.dispatcher(), {});
    session.Run();
    close(ends[0]);
  }
}

TEST_F(Hostile, ClaimedBulkIsNotAllocated) {
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  for (const uint64_t bulk : {uint64_t{1} << 31, uint64_t{1} << 40, UINT64_MAX}) {
    for (size_t i = 0; i < dispatch::kCallCount; ++i) {
      SendTo(host.dispatcher(), {dispatch::kCalls[i].id, 0, 1, 1, 0, bulk}, {});
    }
  }
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 256 * 1024);  // KiB
}

TEST_F(Hostile, UnknownCallsAreAnsweredAndCountsAreBounded) {
  for (const uint32_t id : {0u, 8u, 0xFFu, 0x1FFFu, 0x2000u, 0xFFFFFFFFu}) {
    SendTo(host.dispatcher(), {id, 0, 1, 1, 0, 0}, {});
    SendTo(host.dispatcher(), {id, 0, 1, 1, 0xFFFFFFFFu, UINT64_MAX}, "x");
  }
}

}  // namespace
}  // namespace smolvm::loopback
