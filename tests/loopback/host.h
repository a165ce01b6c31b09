// A session in this process: the guest's libcuda at one end of a Unix socket, a dispatcher over a
// recording driver at the other. What a program calls can be held against what a driver sees, byte
// by byte, without a device.
#pragma once

#include <cuda.h>
#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "host-daemon/dispatch/dispatcher.h"
#include "host-daemon/session/session.h"
#include "protocol/api/recording_driver.h"

namespace smolvm::loopback {

// A handle that no driver made; only ever compared.
template <typename T>
T Fake(int number) {
  return reinterpret_cast<T>(static_cast<uintptr_t>(0x1000 + number));
}

// One request as the host got it.
struct Recorded {
  wire::FrameHeader header;
  std::string args;
};

// Records every request on its way to the dispatcher.
class RecordingHandler : public session::Handler {
 public:
  explicit RecordingHandler(dispatch::Dispatcher& next) : next_(next) {}
  const session::CallTraits* Traits(uint32_t call_id) const override {
    return next_.Traits(call_id);
  }
  uint32_t Handle(session::Call& call) override;
  void BeforeReply(session::Call& call) override { next_.BeforeReply(call); }
  void LaneEnds(uint32_t lane) override { next_.LaneEnds(lane); }
  std::vector<Recorded> Requests();

 private:
  dispatch::Dispatcher& next_;
  std::mutex mutex_;
  std::vector<Recorded> requests_;
};

// Lifetime: one per process: the guest's library keeps its session for good.
class Host {
 public:
  static Host& Get();

  driver::RecordingDriver driver;
  // What the session calls. A driver that is older than a call has no entry for it.
  driver::DriverTable& table() { return table_; }

  // Forgets what tests have set and seen.
  void Reset();
  // A handle as the program holds it, for Fake<T>(number).
  template <typename T>
  T Handle(int number) {
    return reinterpret_cast<T>(dispatcher_->IdOf(Fake<T>(number)));
  }
  template <typename T>
  T Resolve(T guest_handle) {
    T found{};
    EXPECT_TRUE(dispatcher_->handles().Find(reinterpret_cast<uint64_t>(guest_handle), &found));
    return found;
  }
  // An address that the session may name, and one that a driver may return for new memory.
  CUdeviceptr DeviceMemory() const { return 0x5600'0000'0000; }
  CUdeviceptr FreshMemory() const { return 0x5610'0000'0000; }
  // A call that waits: what was sent before it has been served. Returns the lane's deferred error.
  CUresult Settle();
  size_t Count(const std::string& call);
  std::vector<Recorded> Requests() { return recorder_->Requests(); }
  dispatch::Dispatcher& dispatcher() { return *dispatcher_; }

 private:
  Host();
  void Serve(int listener);

  driver::DriverTable table_;
  std::unique_ptr<dispatch::Dispatcher> dispatcher_;
  std::unique_ptr<RecordingHandler> recorder_;
  std::thread server_;
};

class Loopback : public ::testing::Test {
 protected:
  void SetUp() override { host.Reset(); }
  Host& host = Host::Get();
};

}  // namespace smolvm::loopback
