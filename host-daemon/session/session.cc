#include "host-daemon/session/session.h"

#include "host-daemon/session/engine.h"

namespace smolvm::session {

struct Session::Impl {
  std::shared_ptr<Engine> engine;
};

Session::Session(std::unique_ptr<transport::Channel> channel, Handler& handler,
                 const SessionLimits& limits)
    : impl_(new Impl{std::make_shared<Engine>(*this, std::move(channel), handler, limits)}) {}

Session::~Session() {
  impl_->engine->End("destroyed", true);
  impl_->engine->AwaitLanesGone();
}

void Session::Run() { impl_->engine->Run(); }

bool Session::SendAhead(uint32_t control_id, std::span<const char> args,
                        std::span<const char> bulk) {
  wire::FrameHeader header;
  header.call_id = control_id;
  return impl_->engine->sender().Add(header, args, bulk);
}

void Session::AttachCallbackChannel(std::unique_ptr<transport::Channel> channel) {
  impl_->engine->callback_line().Attach(std::move(channel));
}

bool Session::CallGuest(std::span<const char> args) {
  return impl_->engine->callback_line().Call(args);
}

}  // namespace smolvm::session
