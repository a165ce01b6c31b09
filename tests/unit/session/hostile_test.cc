// Frames that no guest should send, and connections that end anywhere.
#include "tests/unit/session/fake.h"

namespace smolvm::session {
namespace {

class HostileTest : public SessionTest {
 protected:
  // The session must end after these bytes, though the guest's end stays open.
  void ExpectEnd(const wire::FrameHeader& header) {
    Start({});
    Ask(kEcho, 1, "x");
    SendRaw(std::string(reinterpret_cast<const char*>(&header), sizeof header));
    EXPECT_TRUE(GuestSeesEnd()) << header.call_id;
    AwaitEnd();
  }
};

TEST_F(HostileTest, CountsBeyondTheirBounds) {
  for (uint32_t call : {uint32_t{kEcho}, uint32_t{kPastTheEnd}}) {
    for (uint32_t args : {wire::kMaxArgsBytes + 1, UINT32_MAX}) {
      ExpectEnd({.call_id = call, .sequence = 1, .lane_or_status = 1, .args_length = args});
    }
    for (uint64_t bulk : {kFakeMaxBulk + 1, uint64_t{1} << 40, UINT64_MAX, UINT64_MAX - 31}) {
      ExpectEnd({.call_id = call, .sequence = 1, .lane_or_status = 1, .bulk_length = bulk});
    }
  }
  ExpectEnd({.call_id = kEcho, .lane_or_status = 1, .args_length = kFakeMaxArgs + 1});
}

TEST_F(HostileTest, CountsAtTheirBounds) {
  const std::string args(kFakeMaxArgs, 'a');
  EXPECT_EQ(Ask(kEcho, 1, args).args, args);
  EXPECT_EQ(Ask(kIgnoreBulk, 1, "", std::string(kFakeMaxBulk, 'b')).header.lane_or_status, 0u);
}

TEST_F(HostileTest, EveryControlIdThatIsNotARequest) {
  for (uint32_t id = 0; id < wire::kFirstCallId; ++id) {
    if (id != wire::kLaneEnds && id != wire::kGoodbye) {
      ExpectEnd({.call_id = id, .sequence = 1, .lane_or_status = 1});
    }
  }
  ExpectEnd({.call_id = wire::kLaneEnds, .lane_or_status = 1, .args_length = 1});
  ExpectEnd({.call_id = wire::kGoodbye, .lane_or_status = 1, .bulk_length = 1});
}

TEST_F(HostileTest, EveryFlagThatIsNotARequests) {
  for (int bit = 2; bit < 32; ++bit) {
    ExpectEnd({.call_id = kEcho, .flags = 1u << bit, .lane_or_status = 1});
  }
}

TEST_F(HostileTest, ACallThatMayNotBeDeferred) {
  ExpectEnd({.call_id = kEcho, .flags = wire::kFlagNoReply, .lane_or_status = 1});
}

TEST_F(HostileTest, MalformedArguments) {
  ExpectEnd({.call_id = kBad, .sequence = 1, .lane_or_status = 1});
  ExpectEnd({.call_id = kBad, .sequence = 1, .lane_or_status = 2});
}

TEST_F(HostileTest, AnyLaneAndSequence) {
  for (uint32_t lane : {0u, 1u, 0x80000000u, UINT32_MAX}) {
    for (uint64_t sequence : {uint64_t{0}, uint64_t{1}, UINT64_MAX}) {
      SendRaw(Frame(kEcho, lane, wire::kFlagPerThreadStream, sequence, "x"));
      EXPECT_EQ(Reply().header.sequence, sequence);
    }
  }
}

TEST_F(HostileTest, CutOffAtEveryByte) {
  const std::string whole = Frame(kSum, 1, 0, 1, "argument", "bulk bytes");
  for (size_t size = 0; size < whole.size(); ++size) {
    for (const bool on_first_frame : {false, true}) {
      Start({});
      if (!on_first_frame) Ask(kEcho, 1, "x");
      SendRaw(whole.substr(0, size));
      guest_.reset();
      AwaitEnd();
    }
  }
}

TEST_F(HostileTest, CutOffAtEveryByteWhileAnotherLaneBlocks) {
  const std::string whole = Frame(kSum, 2, 0, 1, "argument", "bulk bytes");
  for (size_t size = 0; size <= whole.size(); ++size) {
    Start({});
    Send(kBlock, 1, "\xff");
    SendRaw(whole.substr(0, size));
    guest_.reset();
    AwaitEnd();
  }
}

TEST_F(HostileTest, HalfClosed) {
  Send(kBlock, 1, "\1");
  handler_.AwaitWaiting(1);
  shutdown(guest_->fd(), SHUT_WR);
  AwaitEnd();
  EXPECT_TRUE(GuestSeesEnd());
}

}  // namespace
}  // namespace smolvm::session
