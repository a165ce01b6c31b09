// Our vsock device as a hostile QEMU and its hostile guest see it: messages in any order, rings and
// packets in memory that changes at any time, sockets that close.
//
// The input is a list of steps, each of a byte that says what it is (its lowest two bits), and
// more:
//   0  message:  u8 request | u8 bit 0 need_reply, bits 4.. descriptors | u8 length | payload
//   1  memory:   u16 offset in guest memory, times 4 | u8 length | bytes
//   2  service:  the device looks at its queues
//   3  streams:  u8 bit 0 the host's ends send, bit 1 they close, bit 2 the host connects to the
//   guest
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "host-daemon/vsock/mux.h"
#include "host-daemon/vsock/vhost_user.h"

namespace {

using namespace smolvm::vsock;

constexpr uint64_t kCid = 42;
constexpr size_t kRamBytes = 256 * 1024;
constexpr uint32_t kSetMemTable = 5;
constexpr size_t kMaxStreams = 8;
constexpr int kBudget = 64;

class Steps {
 public:
  explicit Steps(std::span<const uint8_t> bytes) : rest_(bytes) {}
  bool empty() const { return rest_.empty(); }
  uint8_t Byte() {
    if (rest_.empty()) return 0;
    const uint8_t byte = rest_[0];
    rest_ = rest_.subspan(1);
    return byte;
  }
  std::span<const uint8_t> Take(size_t size) {
    const auto taken = rest_.first(std::min(size, rest_.size()));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }

 private:
  std::span<const uint8_t> rest_;
};

class Fuzzed : private FrontEnd::Observer, private SocketWatcher {
 public:
  Fuzzed()
      : mux_(
            kCid, {.max_connections = kMaxStreams, .buffer = 4096},
            [this](uint32_t, uint32_t port) { return port % 4 == 3 ? -1 : Connect(); }, this) {
    ram_fd_ = smolvm::UniqueFd(memfd_create("guest-ram", MFD_CLOEXEC));
    if (ftruncate(ram_fd_.get(), kRamBytes) != 0) abort();
    ram_ = static_cast<uint8_t*>(
        mmap(nullptr, kRamBytes, PROT_READ | PROT_WRITE, MAP_SHARED, ram_fd_.get(), 0));
  }
  ~Fuzzed() override { munmap(ram_, kRamBytes); }

  void Run(Steps steps) {
    while (!steps.empty()) {
      switch (steps.Byte() & 3) {
        case 0:
          if (!Message(&steps)) return;
          break;
        case 1:
          Memory(&steps);
          break;
        case 2:
          Service();
          break;
        default:
          Streams(steps.Byte());
      }
    }
    Service();
  }

 private:
  bool Message(Steps* steps) {
    VhostUserMessage message;
    message.request = steps->Byte();
    const uint8_t flags = steps->Byte();
    message.need_reply = flags & 1;
    const auto payload = steps->Take(steps->Byte());
    message.payload.assign(payload.begin(), payload.end());
    for (int fds = flags >> 4; fds > 0; --fds) {
      message.fds.emplace_back(message.request == kSetMemTable
                                   ? dup(ram_fd_.get())
                                   : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    }
    return front_end_.Handle(std::move(message)).error.empty();
  }
  void Memory(Steps* steps) {
    const size_t offset = (steps->Byte() | steps->Byte() << 8) * size_t{4};
    const auto bytes = steps->Take(steps->Byte());
    std::memcpy(ram_ + offset, bytes.data(), std::min(bytes.size(), kRamBytes - offset));
  }
  void Service() {
    if (!front_end_.Active(kRxQueue) || !front_end_.Active(kTxQueue)) return;
    Virtqueue& rx = front_end_.ring(kRxQueue).queue;
    Virtqueue& tx = front_end_.ring(kTxQueue).queue;
    // Bounded rounds: a guest that always sends more is served in turns with the rest.
    for (int round = 0; round < 4; ++round) {
      mux_.DrainTx(&tx, kBudget);
      mux_.FillRx(&rx, kBudget);
    }
    rx.ShouldNotify();
    tx.ShouldNotify();
    if (rx.broken() || tx.broken()) mux_.ResetAll();
  }
  void Streams(uint8_t what) {
    for (smolvm::UniqueFd& end : ends_) {
      if (what & 1) send(end.get(), "text for the guest", 18, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (what & 2) end.reset();
    }
    if (what & 2) ends_.clear();
    if (what & 4) mux_.ConnectToGuest(smolvm::UniqueFd(Connect()), what);
    const std::vector<uint64_t> ids = watched_;
    for (const uint64_t id : ids)
      mux_.OnSocket(id, EPOLLIN | EPOLLOUT | (what & 2 ? uint32_t{EPOLLHUP} : 0));
    mux_.Tick(Mux::Clock::now() + std::chrono::hours(1));
  }
  int Connect() {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return -1;
    if (ends_.size() == kMaxStreams) ends_.erase(ends_.begin());
    ends_.emplace_back(ends[1]);
    return ends[0];
  }

  // FrontEnd::Observer
  void OnKickFd(uint32_t, int, int) override {}
  void OnGuestReset() override { mux_.ResetAll(); }
  void OnMemory() override {}
  // SocketWatcher
  bool Watch(int, uint64_t id) override {
    watched_.push_back(id);
    return true;
  }
  void Unwatch(int) override {}

  smolvm::UniqueFd ram_fd_;
  uint8_t* ram_ = nullptr;
  std::vector<smolvm::UniqueFd> ends_;
  std::vector<uint64_t> watched_;
  Mux mux_;
  FrontEnd front_end_{kCid, this};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Fuzzed fuzzed;
  fuzzed.Run(Steps({data, size}));
  return 0;
}
