// Serves the calls of one session by a table of driver entry points.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "host-daemon/dispatch/copy_back.h"
#include "host-daemon/dispatch/device_output.h"
#include "host-daemon/dispatch/dispatch_table.h"
#include "host-daemon/dispatch/handle_table.h"
#include "host-daemon/dispatch/layouts.h"
#include "host-daemon/dispatch/link_table.h"
#include "host-daemon/dispatch/memory_table.h"
#include "host-daemon/dispatch/staging.h"
#include "host-daemon/session/call.h"
#include "protocol/api/driver_table.h"

namespace smolvm::dispatch {

struct Policy {
  // Bytes of device memory; 0 = no limit of ours.
  uint64_t memory_limit = 0;
  // Where what the driver and the kernels print ends up in this process; -1 = nowhere.
  int output_fd = -1;
  int errors_fd = -1;
  // Whether device memory lies at its addresses in this process too, as the emulation device's
  // does.
  bool device_memory_is_addressable = false;
};

// Lifetime: one per session; the driver table must outlive it.
// Threads: a call is served on its lane's thread; all tables are safe to use from every lane.
class Dispatcher : public session::Handler {
 public:
  Dispatcher(const driver::DriverTable& driver, const Policy& policy);

  const session::CallTraits* Traits(uint32_t call_id) const override;
  uint32_t Handle(session::Call& call) override;
  void BeforeReply(session::Call& call) override;
  void LaneEnds(uint32_t) override {}

  const driver::DriverTable& driver() const { return driver_; }
  HandleTable& handles() { return handles_; }
  LinkTable& links() { return links_; }
  MemoryTable& memory() { return memory_; }
  CopiesBack& copies_back() { return copies_back_; }
  Staging& staging() { return staging_; }
  Layouts& layouts() { return layouts_; }
  bool device_memory_is_addressable() const { return device_memory_is_addressable_; }

  // The answer when the host's driver is older than a call.
  CUresult NotInDriver(const char* name);

  // Ids for handles of the driver. What belongs to a context ends with it; libraries, kernels,
  // pools and links belong to none, and the handle of a primary context outlives its resets.
  template <typename T>
  uint64_t Mint(T handle) {
    return handles_.Mint(handle, OwnerOf(handle));
  }
  uint64_t Mint(CUcontext context) { return handles_.Mint(context, context); }
  template <typename T>
  uint64_t IdOf(T handle) {
    return handles_.IdOf(handle, OwnerOf(handle));
  }
  // False when it is more than the session may hold; then it is freed.
  bool MemoryMinted(CUdeviceptr address, uint64_t bytes);
  CUcontext CurrentContext() const;
  // What a context owned is gone with it.
  void ContextEnded(CUcontext context);

  // A look that does not block; when the answer is not there, other lanes get the connection
  // (Call::AboutToBlock).
  void BeforeWaitingForStream(session::Call& call, CUstream stream);
  void BeforeWaitingForEvent(session::Call& call, CUevent event);
  void BeforeWaitingForContext(session::Call& call);
  // The variant of cuStreamQuery that fits the call's default stream.
  CUresult QueryStream(const session::Call& call, CUstream stream) const;
  CUresult SynchronizeStream(const session::Call& call, CUstream stream) const;
  CUresult RecordEvent(const session::Call& call, CUevent event, CUstream stream) const;

 private:
  template <typename T>
  CUcontext OwnerOf(T) const {
    return CurrentContext();
  }
  CUcontext OwnerOf(CUcontext) const { return nullptr; }
  CUcontext OwnerOf(CUlibrary) const { return nullptr; }
  CUcontext OwnerOf(CUkernel) const { return nullptr; }
  CUcontext OwnerOf(CUmemoryPool) const { return nullptr; }
  CUcontext OwnerOf(CUlinkState) const { return nullptr; }

  const driver::DriverTable& driver_;
  const bool device_memory_is_addressable_;
  HandleTable handles_;
  LinkTable links_;
  MemoryTable memory_;
  Staging staging_;
  Layouts layouts_;
  CopiesBack copies_back_;
  DeviceOutput output_;
  DeviceOutput errors_;
  std::array<const CallRow*, wire::kMaxCallId + 1> rows_{};
  std::mutex logged_mutex_;
  std::set<std::string> logged_;
};

}  // namespace smolvm::dispatch
