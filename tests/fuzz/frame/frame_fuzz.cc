// The session alone: frames, lanes, order, deferred errors, over a handler that uses every part of
// a call.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "host-daemon/session/session.h"
#include "tests/fuzz/frame/session_stream.h"

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
  FuzzHandler handler;
  fuzz::ServeBytes(handler, data, size);
  return 0;
}
