// The worker's backend: a driver library, and a dispatcher over it for the worker's one session.
#include "host-daemon/worker/backend.h"

#include <fmt/format.h>

#include "host-daemon/dispatch/dispatcher.h"
#include "host-daemon/dispatch/snapshot.h"
#include "host-daemon/driver/driver.h"

namespace smolvm::worker {
namespace {

class DriverBackend : public Backend {
 public:
  DriverBackend(const driver::DriverTable& table, const BackendPolicy& policy)
      : table_(table),
        policy_{policy.memory_limit, policy.output_fd, policy.errors_fd,
                policy.device_memory_is_addressable} {}

  // Asked for before a guest is there, so that the guest need not wait for it.
  CUresult TakeSnapshot() {
    return dispatch::FillSnapshot(table_, policy_.memory_limit, &snapshot_);
  }

  size_t devices() const { return snapshot_.devices.size(); }

  std::string Describe() const override {
    return fmt::format("driver_version={} devices={}", snapshot_.driver_version, devices());
  }

  void FillHello(const api::Hello&, api::HelloReply* reply) override {
    reply->spec_version = snapshot_.spec_version;
    reply->known_calls = snapshot_.known_calls;
    reply->driver_version = snapshot_.driver_version;
    reply->devices = snapshot_.devices;
  }

  std::unique_ptr<session::Handler> MakeHandler(const api::Hello&) override {
    return std::make_unique<dispatch::Dispatcher>(table_, policy_);
  }

 private:
  const driver::DriverTable table_;
  const dispatch::Policy policy_;
  api::HelloReply snapshot_;
};

}  // namespace

std::unique_ptr<Backend> LoadBackend(const std::string& library, const BackendPolicy& policy,
                                     std::string* error) {
  driver::DriverTable table;
  if (!driver::LoadDriver(library, &table, error)) return nullptr;
  if (const CUresult result = table.cuInit(0)) {
    *error = fmt::format("cuInit of {} returned {}", library, static_cast<int>(result));
    return nullptr;
  }
  auto backend = std::make_unique<DriverBackend>(table, policy);
  const CUresult result = backend->TakeSnapshot();
  if (result != CUDA_SUCCESS || backend->devices() == 0) {
    *error = result ? fmt::format("{} describes no device: {}", library, static_cast<int>(result))
                    : library + " has no device";
    return nullptr;
  }
  return backend;
}

}  // namespace smolvm::worker
