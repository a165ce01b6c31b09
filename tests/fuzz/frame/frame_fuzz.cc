// Feeds a session whatever bytes the fuzzer makes up, as a guest would send them, then leaves.
#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "host-daemon/session/session.h"

namespace {

using namespace smolvm;

// Uses every part of Call; which, the call's id says.
class FuzzHandler : public session::Handler {
 public:
  const session::CallTraits* Traits(uint32_t id) const override {
    static const session::CallTraits deferrable{"deferrable", 256, 4096, true, false};
    static const session::CallTraits waiting{"waiting", 1024, 1 << 16, false, true};
    if (id < wire::kFirstCallId + 4) return &deferrable;
    return id < wire::kFirstCallId + 8 ? &waiting : nullptr;
  }
  uint32_t Handle(session::Call& call) override {
    const uint32_t id = call.header().call_id;
    std::vector<char> bytes(call.bulk_left() / 2);
    if ((id & 1) != 0 && !call.ReadBulk(bytes.data(), bytes.size())) return 999;
    if ((id & 2) != 0) {
      std::vector<char> rest(call.bulk_left());
      if (!call.ReadBulk(rest.data(), rest.size())) return 999;
      call.AboutToBlock();
    }
    if (!call.nobody_waits()) call.SendBulk(bytes.data(), bytes.size());
    call.reply().assign(call.args().data(), call.args().size());
    return call.args().size() == 13 ? kMalformed : static_cast<uint32_t>(call.args().size() % 3);
  }
  void BeforeReply(session::Call& call) override {
    if (call.args().size() == 5) call.session().SendAhead(wire::kDeviceOutput, {}, call.args());
  }
  void LaneEnds(uint32_t) override {}
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return 0;
  FuzzHandler handler;
  session::Session session(std::make_unique<transport::Channel>(ends[1]), handler,
                           {.max_lanes = 4, .lane_stack_bytes = 256 * 1024});
  // Replies are read too, or a session with much to say would wait for ever.
  std::thread reader([fd = ends[0]] {
    char bytes[4096];
    while (recv(fd, bytes, sizeof bytes, 0) > 0) {
    }
  });
  std::thread writer([fd = ends[0], data, size] {
    for (size_t sent = 0; sent < size;) {
      const ssize_t count = send(fd, data + sent, size - sent, MSG_NOSIGNAL);
      if (count <= 0) break;
      sent += static_cast<size_t>(count);
    }
    shutdown(fd, SHUT_WR);
  });
  session.Run();
  writer.join();
  reader.join();
  close(ends[0]);
  return 0;
}
