#include "host-daemon/vsock/device.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "protocol/base/file_status.h"
#include "protocol/log/log.h"

namespace smolvm::vsock {
namespace {

// What an epoll event belongs to; a stream's is its id plus kFirstStream.
enum Token : uint64_t { kListener, kWake, kFrontEndSocket, kFirstKick, kFirstStream = 16 };
static_assert(kFirstKick + kQueues <= kFirstStream);

// Packets, and turns of streams, before other events are looked at.
constexpr int kBudget = 256;

// Without share=on QEMU hands over the file of guest memory all the same, but the guest writes to a
// private copy of it.
constexpr char kNotShared[] =
    "the guest's memory is not shared: QEMU needs -object "
    "memory-backend-memfd,id=mem,size=...,share=on and -machine ...,memory-backend=mem";

// Whether somebody listens at `address`; only if certainly not may the socket be removed.
bool NobodyListens(const sockaddr_un& address) {
  UniqueFd probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  return probe &&
         connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 &&
         errno == ECONNREFUSED;
}

}  // namespace

Device::Device(DeviceConfig config, ConnectHandler handler)
    : config_(std::move(config)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      mux_(config_.guest_cid, config_.limits, std::move(handler), this) {}

Device::~Device() {
  mux_.ResetAll();
  front_end_.reset();
  struct stat st;
  // Another device that took the path over has removed ours first.
  if (bound_ && StatusOf(bound_.get(), &st) && st.st_nlink != 0) {
    unlink(config_.socket_path.c_str());
  }
}

bool Device::Listen(std::string* error) {
  if (!epoll_ || !wake_) {
    *error = fmt::format("epoll or eventfd: {}", strerror(errno));
    return false;
  }
  if (config_.guest_cid <= kHostCid || config_.guest_cid >= UINT32_MAX) {
    *error = fmt::format("{} is no CID that a guest may have", config_.guest_cid);
    return false;
  }
  if (!BindSocket(error)) return false;
  if (!AddToEpoll(wake_.get(), EPOLLIN, kWake) ||
      !AddToEpoll(listener_.get(), EPOLLIN, kListener)) {
    *error = fmt::format("epoll_ctl: {}", strerror(errno));
    return false;
  }
  return true;
}

bool Device::BindSocket(std::string* error) {
  const std::string& path = config_.socket_path;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    *error = fmt::format("socket path '{}' is empty or longer than {} bytes", path,
                         sizeof(address.sun_path) - 1);
    return false;
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  struct stat st;
  if (lstat(path.c_str(), &st) == 0) {
    if (!S_ISSOCK(st.st_mode) || !NobodyListens(address)) {
      *error = fmt::format("{} is in use", path);
      return false;
    }
    unlink(path.c_str());
  }
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // On Linux bind() gives the socket file the mode of the descriptor: there is no moment at which
  // others could connect.
  if (!fd || fchmod(fd.get(), 0600) != 0 ||
      bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(fd.get(), 8) != 0) {
    *error = fmt::format("{}: {}", path, strerror(errno));
    return false;
  }
  bound_.reset(open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  listener_ = std::move(fd);
  return true;
}

// --- epoll

bool Device::AddToEpoll(int fd, uint32_t events, uint64_t token) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = token;
  return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void Device::RemoveFromEpoll(int fd) { epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

bool Device::Watch(int fd, uint64_t id) {
  return AddToEpoll(fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, id + kFirstStream);
}

void Device::Unwatch(int fd) { RemoveFromEpoll(fd); }

int Device::WaitMilliseconds(bool more) const {
  if (more) return 0;
  const auto next = mux_.NextTick();
  if (!next) return -1;
  const auto wait =
      std::chrono::ceil<std::chrono::milliseconds>(*next - Connection::Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(wait, 0, 1000));
}

Device::Result Device::Run() {
  bool more = false;
  while (!stop_ && !ended_) {
    epoll_event events[64];
    const int n = epoll_wait(epoll_.get(), events, std::size(events), WaitMilliseconds(more));
    if (n < 0 && errno != EINTR) {
      log::Error("event=vsock_epoll_failed error={}", log::Quote(strerror(errno)));
      return Result::kFailed;
    }
    for (int i = 0; i < n && !ended_; ++i) HandleEvent(events[i].data.u64, events[i].events);
    mux_.Tick(Connection::Clock::now());
    more = Service();
  }
  if (stop_) return Result::kStopped;
  return failed_ ? Result::kFailed : Result::kFrontEndGone;
}

void Device::Stop() {
  stop_ = true;
  SignalEventFd(wake_.get());
}

void Device::HandleEvent(uint64_t token, uint32_t events) {
  if (token >= kFirstStream) return mux_.OnSocket(token - kFirstStream, events);
  switch (token) {
    case kListener:
      return AcceptFrontEnd();
    case kWake:
      return TakeRequests();
    case kFrontEndSocket:
      return ReadFrontEnd();
    default:
      return OnKick(token - kFirstKick);
  }
}

void Device::OnKick(uint32_t index) {
  Ring* ring = front_end_ ? &front_end_->ring(index) : nullptr;
  uint64_t count = 0;
  if (ring == nullptr || !ring->kick) return;
  if (read(ring->kick.get(), &count, sizeof(count)) != sizeof(count)) return;
  // Service() looks at both rings in any case. Here only this: QEMU kicks each ring once when it
  // starts it; if then the guest kicks and yet neither ring was ever written to, we do not see the
  // memory that it writes to.
  memory_seen_ = memory_seen_ || front_end_->ring(kRxQueue).queue.Touched() ||
                 front_end_->ring(kTxQueue).queue.Touched();
  if (memory_seen_) return;
  kicks_for_nothing_ += count;
  if (kicks_for_nothing_ > kQueues) DropFrontEnd(kNotShared);
}

// --- The front end

void Device::AcceptFrontEnd() {
  UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!fd || front_end_) return;
  if (!AddToEpoll(fd.get(), EPOLLIN, kFrontEndSocket)) {
    log::Error("event=vsock_epoll_failed error={}", log::Quote(strerror(errno)));
    return;
  }
  RemoveFromEpoll(listener_.get());  // one at a time; the next waits in the backlog
  front_end_socket_ = std::move(fd);
  reader_ = MessageReader();
  spoke_ = false;
  memory_seen_ = false;
  FrontEnd::Observer* observer = this;
  front_end_ = std::make_unique<FrontEnd>(config_.guest_cid, observer);
}

void Device::ReadFrontEnd() {
  // A few at a time: epoll reports what is left.
  for (int i = 0; i < 16 && front_end_; ++i) {
    VhostUserMessage message;
    std::string error;
    switch (reader_.Read(front_end_socket_.get(), &message, &error)) {
      case MessageReader::Result::kNothingYet:
        return;
      case MessageReader::Result::kClosed:
        return DropFrontEnd("");
      case MessageReader::Result::kError:
        return DropFrontEnd(error);
      case MessageReader::Result::kMessage:
        break;
    }
    if (!std::exchange(spoke_, true)) {
      log::Info("event=vsock_front_end_connected guest_cid={}", config_.guest_cid);
    }
    log::Debug("event=vhost_user_message request={} bytes={} fds={}", message.request,
               message.payload.size(), message.fds.size());
    const uint32_t request = message.request;
    FrontEnd::Outcome outcome = front_end_->Handle(std::move(message));
    if (outcome.reply && !SendReply(front_end_socket_.get(), request, *outcome.reply)) {
      return DropFrontEnd("it takes no replies");
    }
    if (!outcome.error.empty()) return DropFrontEnd(outcome.error);
  }
}

void Device::DropFrontEnd(const std::string& reason) {
  if (!reason.empty()) {
    log::Error("event=vsock_front_end_dropped guest_cid={} reason={}", config_.guest_cid,
               log::Quote(reason));
    failed_ = true;
  } else if (spoke_) {
    log::Info("event=vsock_front_end_gone guest_cid={}", config_.guest_cid);
  }
  mux_.ResetAll();
  front_end_.reset();
  OnMemory();
  RemoveFromEpoll(front_end_socket_.get());
  front_end_socket_.reset();
  if (config_.once && (spoke_ || failed_)) {
    ended_ = true;
  } else if (!AddToEpoll(listener_.get(), EPOLLIN, kListener)) {
    log::Error("event=vsock_epoll_failed error={}", log::Quote(strerror(errno)));
    ended_ = failed_ = true;
  }
}

void Device::OnKickFd(uint32_t ring, int old_fd, int new_fd) {
  if (old_fd >= 0) RemoveFromEpoll(old_fd);
  kicks_for_nothing_ = 0;
  if (new_fd >= 0 && !AddToEpoll(new_fd, EPOLLIN, kFirstKick + ring)) {
    // What is no eventfd may be no pollable file either; such a ring is simply never kicked.
    log::Error("event=vsock_bad_kick_fd guest_cid={} ring={} error={}", config_.guest_cid, ring,
               log::Quote(strerror(errno)));
  }
}

void Device::OnGuestReset() {
  if (log_limit_.Allow()) {
    log::Info("event=vsock_guest_reset guest_cid={} streams={} suppressed={}", config_.guest_cid,
              mux_.connections(), log_limit_.TakeSuppressed());
  }
  mux_.ResetAll();
}

void Device::OnMemory() {
  std::vector<MemoryRegion> now;
  if (front_end_ && front_end_->memory() != nullptr) {
    for (const MemoryRegion& r : front_end_->memory()->regions()) {
      UniqueFd copy(fcntl(r.fd.get(), F_DUPFD_CLOEXEC, 0));
      now.push_back({r.guest_addr, r.size, r.user_addr, r.file_offset, std::move(copy)});
    }
  }
  std::lock_guard lock(mutex_);
  shared_regions_ = std::move(now);
}

std::vector<MemoryRegion> Device::GuestRegions() const {
  std::lock_guard lock(mutex_);
  std::vector<MemoryRegion> regions;
  for (const MemoryRegion& r : shared_regions_) {
    UniqueFd copy(fcntl(r.fd.get(), F_DUPFD_CLOEXEC, 0));
    if (!copy) return {};
    regions.push_back({r.guest_addr, r.size, r.user_addr, r.file_offset, std::move(copy)});
  }
  return regions;
}

// --- Streams

int Device::ConnectToGuest(uint32_t port) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return -1;
  {
    std::lock_guard lock(mutex_);
    requests_.emplace_back(UniqueFd(ends[0]), port);
  }
  SignalEventFd(wake_.get());
  return ends[1];
}

void Device::TakeRequests() {
  uint64_t count;
  if (read(wake_.get(), &count, sizeof(count)) < 0) return;
  std::vector<std::pair<UniqueFd, uint32_t>> requests;
  {
    std::lock_guard lock(mutex_);
    requests.swap(requests_);
  }
  for (auto& [fd, port] : requests) {
    if (!front_end_ || !mux_.ConnectToGuest(std::move(fd), port)) {
      log::Warn("event=vsock_no_guest_connection guest_cid={} port={}", config_.guest_cid, port);
    }
  }
}

bool Device::Service() {
  if (!front_end_ || !front_end_->Active(kRxQueue) || !front_end_->Active(kTxQueue)) return false;
  Ring& rx = front_end_->ring(kRxQueue);
  Ring& tx = front_end_->ring(kTxQueue);
  const bool more_tx = mux_.DrainTx(&tx.queue, kBudget) == Mux::Progress::kMore;
  const bool more_rx = mux_.FillRx(&rx.queue, kBudget) == Mux::Progress::kMore;
  if (rx.queue.ShouldNotify()) SignalEventFd(rx.call.get());
  if (tx.queue.ShouldNotify()) SignalEventFd(tx.call.get());
  CheckBroken(kRxQueue);
  CheckBroken(kTxQueue);
  return more_tx || more_rx;
}

void Device::CheckBroken(uint32_t index) {
  Ring& ring = front_end_->ring(index);
  if (!ring.queue.broken()) return;
  if (log_limit_.Allow()) {
    log::Error("event=vsock_ring_broken guest_cid={} ring={} reason={} suppressed={}",
               config_.guest_cid, index == kRxQueue ? "rx" : "tx", log::Quote(ring.queue.error()),
               log_limit_.TakeSuppressed());
  }
  SignalEventFd(ring.err.get());
  mux_.ResetAll();
}

}  // namespace smolvm::vsock
