// The vsock protocol engine: the table of streams, what each packet of the guest does to them, and
// which of them fills the guest's next receive buffers.
//
// It knows two virtqueues and the sockets of its streams, but neither vhost-user nor epoll: whoever
// drives it says when a queue was kicked, a socket became ready, or time has passed.
//
// What a guest can make it hold is bounded: `max_connections` streams with at most `buffer` bytes
// each, and kMaxResets answers to packets of streams that do not exist. While the latter are full
// the guest's packets are left in its queue.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "host-daemon/vsock/connection.h"
#include "host-daemon/vsock/packet.h"
#include "host-daemon/vsock/virtqueue.h"
#include "protocol/base/log_limit.h"

namespace smolvm::vsock {

inline constexpr size_t kMaxResets = 1024;
// Of what a guest can cause a device to log: ten lines at once, and one every six seconds.
inline constexpr double kLogBurst = 10, kLogLinesPerSecond = 1.0 / 6;

// The guest connected from `guest_port` to `host_port`: returns a stream socket that is relayed
// (and closed) by the device, or -1, upon which the guest sees its connection refused. Runs on the
// device's thread and must not block.
using ConnectHandler = std::function<int(uint32_t guest_port, uint32_t host_port)>;

struct MuxLimits {
  uint32_t max_connections = 1024;
  uint32_t buffer = 256 * 1024;  // bytes, for each stream, that wait for the host to take them
};

// Watches a stream's socket, edge-triggered, for everything. `id` comes back in OnSocket().
class SocketWatcher {
 public:
  virtual ~SocketWatcher() = default;
  virtual bool Watch(int fd, uint64_t id) = 0;
  virtual void Unwatch(int fd) = 0;
};

// Threads: one only.
class Mux {
 public:
  using Clock = Connection::Clock;
  enum class Progress { kDone, kMore };

  Mux(uint64_t guest_cid, MuxLimits limits, ConnectHandler handler, SocketWatcher* watcher);
  ~Mux();

  // Takes up to `budget` packets from the guest. kMore if it may have sent more: call again soon,
  // no kick will come for those.
  Progress DrainTx(Virtqueue* tx, int budget);
  // Fills the guest's receive buffers with what is due, up to `budget` turns. After kDone a kick or
  // one of the other events is what makes more possible.
  Progress FillRx(Virtqueue* rx, int budget);
  // epoll's `events` of the stream's socket.
  void OnSocket(uint64_t id, uint32_t events);
  // Asks the guests of stalled streams for credit when it is time; NextTick says when.
  void Tick(Clock::time_point now);
  std::optional<Clock::time_point> NextTick() const;

  // Opens a stream from the host to the guest's `port`, relayed to `fd`. The socket is closed when
  // the guest refuses. False if there are too many streams.
  bool ConnectToGuest(UniqueFd fd, uint32_t guest_port);
  // Forgets all streams: the guest was reset, or is gone.
  void ResetAll();

  size_t connections() const { return connections_.size(); }

 private:
  void HandlePacket(Packet* packet);
  void HandleRequest(const Header& header);
  void HandleForConnection(Connection* c, Packet* packet);
  // Answers `header`, which belongs to no stream.
  void Refuse(const Header& header);
  void SendReset(Ports ports);

  Connection* FindByPorts(Ports ports);
  Connection* FindById(uint64_t id);
  Connection* Add(Ports ports, UniqueFd fd, bool initiated_by_guest);
  // The guest is done with the stream: it leaves the table once the host has its last bytes.
  void Detach(Connection* c);
  void CloseSocket(Connection* c);
  void Erase(Connection* c);
  // Puts the stream on the list of those with something for the guest, if it has.
  void Consider(Connection* c);

  // Serves one answer or one stream; false if there is none, or no receive buffer for it.
  bool FillOne(Virtqueue* rx);
  bool PopReceiveBuffer(Virtqueue* rx, Chain* chain);
  void SendControl(Virtqueue* rx, Chain* chain, Header header, Connection* c);
  // False if there was no receive buffer for it.
  bool Serve(Virtqueue* rx, Connection* c);
  bool SendData(Virtqueue* rx, Connection* c);
  Header MakeHeader(Ports ports, Op op) const;

  const uint64_t guest_cid_;
  const MuxLimits limits_;
  const ConnectHandler handler_;
  SocketWatcher* const watcher_;

  std::unordered_map<uint64_t, std::unique_ptr<Connection>> connections_;  // by id
  std::unordered_map<uint64_t, uint64_t> by_ports_;                        // Ports::Key to id
  std::deque<uint64_t> ready_;                                             // ids, round robin
  std::unordered_set<uint64_t> stalled_;
  std::deque<Header> resets_;
  bool tx_paused_ = false;  // because resets_ is full
  LogLimit log_limit_{kLogBurst, kLogLinesPerSecond};
  uint64_t next_id_ = 1;
  uint32_t next_host_port_;

  // Reused, so that a packet costs no allocation.
  Chain tx_chain_;
  Packet packet_;
  std::vector<Chain> burst_;
  std::vector<std::vector<iovec>> burst_payload_;
  std::vector<iovec> burst_iov_;
};

}  // namespace smolvm::vsock
