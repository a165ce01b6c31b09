// A guest with its QEMU, for tests of the whole device: speaks vhost-user over a real socket and
// the vsock protocol over rings in a memory file, as Linux does. One thread; whatever waits, waits
// at most kPatience and then fails the test.
#pragma once

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host-daemon/vsock/packet.h"
#include "host-daemon/vsock/vhost_user.h"
#include "tests/unit/vsock/guest_ram.h"

namespace smolvm::vsock {

constexpr uint64_t kCid = 42;
constexpr int kPatienceMs = 20000;

// vhost-user requests, by their numbers in the specification.
namespace request {
constexpr uint32_t kGetFeatures = 1, kSetFeatures = 2, kSetOwner = 3, kSetMemTable = 5,
                   kSetVringNum = 8, kSetVringAddr = 9, kSetVringBase = 10, kGetVringBase = 11,
                   kSetVringKick = 12, kSetVringCall = 13, kSetVringErr = 14,
                   kGetProtocolFeatures = 15, kSetProtocolFeatures = 16, kSetVringEnable = 18,
                   kGetConfig = 24, kSetConfig = 25;
}  // namespace request

constexpr uint64_t kFeatureIndirect = 1ull << 28, kFeatureEventIdx = 1ull << 29,
                   kFeatureProtocol = 1ull << 30, kFeatureVersion1 = 1ull << 32;

struct GuestOptions {
  uint16_t queue_size = 64;
  bool event_idx = true;
  bool indirect = true;
  bool protocol_features = true;
  uint32_t rx_buffer = 4096;     // payload bytes of each receive buffer
  uint32_t rx_header = 44;       // bytes of its first descriptor; 0: one descriptor for all
  uint32_t buffer = 256 * 1024;  // of each stream (SO_VM_SOCKETS_BUFFER_SIZE)
};

// The guest's socket.
struct GuestStream {
  uint32_t guest_port = 0;
  uint32_t host_port = 0;
  bool established = false;
  bool reset = false;
  uint32_t shut = 0;  // flags of the host's shutdown
  std::string in;     // arrived and not yet read
  uint32_t unread_packets = 0;
  uint32_t most_unread_packets = 0;
  uint32_t forwarded = 0;
  uint32_t told_forwarded = 0;
  uint32_t sent = 0;
  uint32_t peer_buffer = 0;
  uint32_t peer_forwarded = 0;

  uint32_t Credit() const { return peer_buffer - (sent - peer_forwarded); }
};

class FakeGuest {
 public:
  explicit FakeGuest(GuestOptions options = {});
  ~FakeGuest();

  // --- QEMU's part
  bool Connect(const std::string& path);
  void Disconnect() { socket_.reset(); }
  // All of a start: features, memory, rings, receive buffers.
  void Start(bool driver = true);
  void Stop();    // GET_VRING_BASE for both rings
  void Resume();  // after Stop, with the bases it returned
  // After Stop, as for a guest that boots anew; without its driver it posts no receive buffers.
  void ResetAndStart(bool driver = true);
  void Send(uint32_t request, const std::vector<uint8_t>& payload, const std::vector<int>& fds = {},
            bool need_reply = false, uint32_t flags = 1);
  // The payload of the next reply; nothing if the device hung up.
  std::optional<std::vector<uint8_t>> Reply();
  uint64_t Ack(uint32_t request, const std::vector<uint8_t>& payload,
               const std::vector<int>& fds = {});
  bool WaitForHangup();
  bool WaitForRingError();  // the err descriptor
  void SetupRing(uint32_t index, uint16_t base);
  void SendMemTable();
  void ReplaceCallFd(uint32_t index);

  template <typename... T>
  static std::vector<uint8_t> Pack(T... values) {
    std::vector<uint8_t> out;
    (out.insert(out.end(), reinterpret_cast<const uint8_t*>(&values),
                reinterpret_cast<const uint8_t*>(&values) + sizeof(values)),
     ...);
    return out;
  }

  // --- The driver's part
  GuestRam& ram() { return ram_; }
  DriverRing& rx() { return rx_; }
  DriverRing& tx() { return tx_; }
  void Kick(uint32_t index);  // if the device asked for it
  void KickAnyway(uint32_t index) { SignalEventFd(fds_[index].kick.get()); }
  void PostReceiveBuffers(int count);
  // Sends one packet, its bytes cut into descriptors of the given sizes (the rest in a last one).
  void SendPacket(Header header, const std::string& payload = "",
                  const std::vector<uint32_t>& cuts = {}, bool indirect = false);
  struct Received {
    Header header;
    std::string payload;
  };
  std::optional<Received> ReceivePacket(int timeout_ms = kPatienceMs);
  Header MakeHeader(uint32_t guest_port, uint32_t host_port, Op op) const;
  bool repost = true;  // whether a receive buffer is posted again once it was used

  // --- The socket layer's part
  GuestStream* Open(uint32_t host_port, uint32_t guest_port = 0);
  GuestStream* Find(uint32_t guest_port, uint32_t host_port);
  // Handles one packet; false if none came.
  bool Pump(int timeout_ms = kPatienceMs);
  template <typename Condition>
  bool PumpUntil(Condition done) {
    while (!done()) {
      if (!Pump()) return false;
    }
    return true;
  }
  // Sends what credit allows of `data` in packets of at most 64 KiB; how much.
  size_t Write(GuestStream* s, const char* data, size_t size);
  // Takes everything that has arrived.
  std::string Read(GuestStream* s);
  std::string ReadExactly(GuestStream* s, size_t size);
  void Shutdown(GuestStream* s, uint32_t flags);
  void SendControl(GuestStream* s, Op op, uint32_t flags = 0);
  bool answer_credit_requests = true;
  uint64_t credit_requests = 0;

 private:
  struct RingFds {
    UniqueFd kick, call, err;
  };
  void PostOne(uint64_t addr);
  void ReclaimTx();
  void Dispatch(const Received& packet);

  const GuestOptions options_;
  GuestRam ram_;
  DriverRing rx_;
  DriverRing tx_;
  RingFds fds_[kQueues];
  UniqueFd socket_;
  uint16_t base_[kQueues] = {};
  std::map<uint32_t, uint64_t> rx_buffers_;  // head to address
  std::vector<uint64_t> tx_slots_;
  size_t next_slot_ = 0;
  uint64_t indirect_table_ = 0;
  uint32_t next_port_ = 10000;
  std::map<std::pair<uint32_t, uint32_t>, std::unique_ptr<GuestStream>> streams_;
};

}  // namespace smolvm::vsock
