#include "machine/supervise/agent_link.h"

#include <charconv>

// <linux/vm_sockets.h> needs sockaddr first.
#include <linux/vm_sockets.h>

#include "machine/util/files.h"

namespace smolvm::machine {
namespace {

// Connections that have not said hello. A program in the guest may open some; more are closed.
constexpr size_t kMaxStrangers = 64;
constexpr size_t kMaxHello = 4096;
// Of what the agent was told and has not read. It reads at once; one that does not is not ours.
constexpr size_t kMaxUnread = 64 << 10;

bool ComesFrom(int fd, unsigned cid) {
  sockaddr_vm address{};
  socklen_t size = sizeof address;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return false;
  return address.svm_family != AF_VSOCK || address.svm_cid == cid;
}

}  // namespace

AgentLink::AgentLink(UniqueFd listener, unsigned cid, std::string secret, Handlers handlers)
    : listener_(std::move(listener)),
      cid_(cid),
      secret_(std::move(secret)),
      handlers_(std::move(handlers)) {}

void AgentLink::OpenExec(OnExec done) {
  const std::string token = RandomHex(16);
  std::string payload;
  PutString(&payload, token);
  expected_[token] = std::move(done);
  Tell(FrameType::kOpen, payload);
}

void AgentLink::PowerOff() { Tell(FrameType::kPowerOff, {}); }

// Never waits: whoever took over the guest might not read.
void AgentLink::Tell(FrameType type, const std::string& payload) {
  if (control_ == nullptr || control_->queued() > kMaxUnread) return;
  control_->Queue(type, payload);
  if (!control_->Flush() || control_->queued() > kMaxUnread) {
    shutdown(control_->fd(), SHUT_RDWR);  // Handle() finds it ended
  }
}

void AgentLink::AddTo(std::vector<pollfd>* fds) const {
  fds->push_back({listener_.get(), POLLIN, 0});
  const bool writes = control_ != nullptr && control_->queued() > 0;
  fds->push_back({control_ != nullptr ? control_->fd() : -1,
                  static_cast<short>(POLLIN | (writes ? POLLOUT : 0)), 0});
  for (const auto& channel : strangers_) fds->push_back({channel->fd(), POLLIN, 0});
}

void AgentLink::Handle(const pollfd* fds) {
  const bool accept = fds[0].revents != 0;
  if (control_ != nullptr && fds[1].revents != 0) HandleControl();
  const pollfd* entry = fds + 2;
  for (auto it = strangers_.begin(); it != strangers_.end(); ++entry) {
    const bool keep = entry->revents == 0 || Greet(&*it);
    it = keep && *it != nullptr ? std::next(it) : strangers_.erase(it);
  }
  if (accept) Accept();
}

void AgentLink::Accept() {
  UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!fd.valid() || strangers_.size() >= kMaxStrangers || !ComesFrom(fd.get(), cid_)) return;
  strangers_.push_back(std::make_unique<Channel>(std::move(fd), kMaxHello));
}

bool AgentLink::Greet(std::unique_ptr<Channel>* channel) {
  if (!(*channel)->ReceiveOneFrame()) return false;
  const std::optional<Frame> frame = (*channel)->Next();
  if (!frame) return !(*channel)->broken();
  const std::optional<Hello> hello = DecodeHello(frame->payload);
  if (frame->type != FrameType::kHello || !hello || hello->secret != secret_) return false;
  return Admit(*hello, channel);
}

bool AgentLink::Admit(const Hello& hello, std::unique_ptr<Channel>* channel) {
  UniqueFd fd((*channel)->ReleaseFd());
  channel->reset();
  if (hello.kind == "control" && control_ == nullptr) {
    control_ = std::make_unique<Channel>(std::move(fd), kMaxFrameFromGuest);
  } else if (hello.kind == "exec") {
    const auto found = expected_.find(hello.argument);
    if (found == expected_.end()) return false;
    const OnExec done = std::move(found->second);
    expected_.erase(found);
    done(std::move(fd));
  } else if (hello.kind == "share") {
    size_t index = 0;
    const std::string& text = hello.argument;
    if (std::from_chars(text.data(), text.data() + text.size(), index).ec != std::errc()) {
      return false;
    }
    handlers_.share(index, std::move(fd));
  }
  return true;
}

void AgentLink::HandleControl() {
  const bool alive = control_->Flush() && control_->Receive();
  while (const std::optional<Frame> frame = control_->Next()) {
    if (frame->type == FrameType::kReady) handlers_.ready();
    if (frame->type == FrameType::kFailed) {
      FieldReader reader(frame->payload);
      handlers_.failed(reader.String());
    }
  }
  if (alive && !control_->broken()) return;
  control_.reset();
  handlers_.lost();
}

}  // namespace smolvm::machine
