// A virtio-vsock device for QEMU, as a vhost-user back end: the host needs neither /dev/vhost-vsock
// nor any privilege. One Device serves one guest.
//
//   QEMU: -object memory-backend-memfd,id=mem,size=512M,share=on -machine
//   microvm,memory-backend=mem
//         -chardev socket,id=vs,path=PATH -device vhost-user-vsock-device,chardev=vs
//
// A guest's connect(2, PORT) becomes a call of the ConnectHandler, whose socket is relayed.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "host-daemon/vsock/guest_memory.h"
#include "host-daemon/vsock/mux.h"
#include "host-daemon/vsock/vhost_user.h"
#include "host-daemon/vsock/vhost_user_socket.h"
#include "protocol/base/log_limit.h"
#include "protocol/base/unique_fd.h"

namespace smolvm::vsock {

struct DeviceConfig {
  std::string socket_path;  // where QEMU connects
  // 3 and up to 2^32 - 2; 0, 1, 2 and 2^32 - 1 are taken (virtio 1.2, section 5.10.4).
  uint64_t guest_cid = 3;
  // The device may hold max_connections * buffer bytes, and max_connections descriptors.
  MuxLimits limits;
  bool once = false;  // Run() returns when the first front end has gone
};

// Lifetime: the handler's captures must outlive the device.
// Threads: Run() belongs to one thread, on which the handler is called; Listen() comes before it.
// Stop(), ConnectToGuest() and GuestRegions() may be called from any thread, Stop() also from a
// signal handler.
class Device : private FrontEnd::Observer, private SocketWatcher {
 public:
  Device(DeviceConfig config, ConnectHandler handler);
  // Removes the socket that Listen() made.
  ~Device() override;

  // Creates the socket, for this user only (0600). A socket in its place is removed if nobody
  // listens there; anything else there is an error. QEMU may connect from here on.
  bool Listen(std::string* error);

  enum class Result {
    kStopped,       // by Stop()
    kFrontEndGone,  // `once`, and the front end has disconnected
    kFailed,        // `once`, and the front end or its guest broke the protocol; the log has it
  };
  // Serves one front end after the other. A front end that misbehaves is dropped; a guest that does
  // loses its rings, until the front end sets them up anew.
  Result Run();
  void Stop();

  // Opens a stream to `port` in the guest and returns our end of it, or -1 with errno. It is there
  // at once; a guest that refuses closes it.
  int ConnectToGuest(uint32_t port);

  // What the guest's RAM is made of, as the front end shares it now; empty while it has not. The
  // descriptors are the caller's own.
  std::vector<MemoryRegion> GuestRegions() const;

 private:
  // FrontEnd::Observer
  void OnKickFd(uint32_t ring, int old_fd, int new_fd) override;
  void OnGuestReset() override;
  void OnMemory() override;
  // SocketWatcher
  bool Watch(int fd, uint64_t id) override;
  void Unwatch(int fd) override;

  bool BindSocket(std::string* error);
  bool AddToEpoll(int fd, uint32_t events, uint64_t token);
  void RemoveFromEpoll(int fd);
  void HandleEvent(uint64_t token, uint32_t events);
  void OnKick(uint32_t ring);
  void AcceptFrontEnd();
  void ReadFrontEnd();
  void DropFrontEnd(const std::string& reason);
  void TakeRequests();
  // Moves packets both ways; true if there may be more at once.
  bool Service();
  void CheckBroken(uint32_t index);
  int WaitMilliseconds(bool more) const;

  const DeviceConfig config_;
  UniqueFd epoll_;
  UniqueFd wake_;  // eventfd: Stop() and ConnectToGuest()
  UniqueFd listener_;
  UniqueFd bound_;  // the socket's file (O_PATH), to remove only ours
  std::atomic<bool> stop_{false};

  UniqueFd front_end_socket_;
  MessageReader reader_;
  bool spoke_ = false;  // the front end has sent a message
  bool ended_ = false;  // `once`, and it is over
  bool failed_ = false;
  bool memory_seen_ = false;        // the guest has written to a ring of this front end
  uint64_t kicks_for_nothing_ = 0;  // since a ring was started, while it has not
  LogLimit log_limit_{kLogBurst, kLogLinesPerSecond};
  std::unique_ptr<FrontEnd> front_end_;
  Mux mux_;

  mutable std::mutex mutex_;
  std::vector<std::pair<UniqueFd, uint32_t>> requests_;  // guarded by mutex_
  std::vector<MemoryRegion> shared_regions_;             // guarded by mutex_
};

}  // namespace smolvm::vsock
