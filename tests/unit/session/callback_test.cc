// Host functions: the second connection.
#include <unistd.h>

#include "tests/unit/session/fake.h"

namespace smolvm::session {
namespace {

class CallbackTest : public SessionTest {
 protected:
  void Attach() {
    int fds[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    line_ = std::make_unique<transport::Channel>(fds[0]);
    session_->AttachCallbackChannel(std::make_unique<transport::Channel>(fds[1]));
  }
  Received Request() {
    std::swap(guest_, line_);
    Received request;
    EXPECT_TRUE(Receive(&request));
    std::swap(guest_, line_);
    return request;
  }
  void Answer(wire::FrameHeader header) { line_->Write(&header, sizeof header); }
  std::unique_ptr<transport::Channel> line_;
};

TEST_F(CallbackTest, TheGuestRunsItAndAnswers) {
  Attach();
  for (int i = 0; i < 3; ++i) {
    Send(kCallGuest, 1, "callback");
    Received request = Request();
    EXPECT_EQ(request.header.call_id, wire::kHostCallback);
    EXPECT_EQ(request.args, "callback");
    request.header.flags = wire::kFlagReply;
    request.header.args_length = 0;
    Answer(request.header);
    EXPECT_EQ(Reply().header.lane_or_status, 0u);
  }
}

TEST_F(CallbackTest, MayBeAttachedAfterTheCall) {
  Send(kCallGuest, 1, "callback");
  usleep(10'000);
  Attach();
  Received request = Request();
  request.header.flags = wire::kFlagReply;
  request.header.args_length = 0;
  Answer(request.header);
  EXPECT_EQ(Reply().header.lane_or_status, 0u);
}

TEST_F(CallbackTest, AWrongAnswerIsAFailureAndEndsTheLine) {
  for (int kind = 0; kind < 5; ++kind) {
    Start({});
    Attach();
    Send(kCallGuest, 1, "callback");
    wire::FrameHeader header = Request().header;
    header.flags = wire::kFlagReply;
    header.args_length = 0;
    if (kind == 0) header.sequence += 1;
    if (kind == 1) header.flags = 0;
    if (kind == 2) header.args_length = UINT32_MAX;
    if (kind == 3) header.bulk_length = UINT64_MAX;
    if (kind == 4) header.call_id = kEcho;
    Answer(header);
    EXPECT_EQ(Reply().header.lane_or_status, 999u) << kind;
    EXPECT_EQ(Status(kCallGuest, 1), 999u) << kind;
  }
}

TEST_F(CallbackTest, ALineThatCloses) {
  Attach();
  Send(kCallGuest, 1, "callback");
  Request();
  line_.reset();
  EXPECT_EQ(Reply().header.lane_or_status, 999u);
}

TEST_F(CallbackTest, ASecondLineIsClosed) {
  Attach();
  const std::unique_ptr<transport::Channel> first = std::move(line_);
  Attach();
  char byte;
  EXPECT_FALSE(line_->Read(&byte, 1));
}

TEST_F(CallbackTest, TheSessionsEndWakesWhoWaits) {
  Attach();
  Send(kCallGuest, 1, "callback");
  Request();
  guest_.reset();
  AwaitEnd();
}

}  // namespace
}  // namespace smolvm::session
