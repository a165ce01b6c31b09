#include "tests/loopback/host.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "host-daemon/dispatch/snapshot.h"
#include "protocol/api/session.wire.h"
#include "protocol/transport/endpoint.h"

namespace smolvm::loopback {
namespace {

bool ReadExactly(int fd, void* out, size_t size) {
  auto* at = static_cast<char*>(out);
  while (size > 0) {
    const ssize_t got = read(fd, at, size);
    if (got <= 0) return false;
    at += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

void SendHelloReply(int fd) {
  api::HelloReply reply;
  reply.protocol_version = wire::kProtocolVersion;
  reply.spec_version = CUDA_VERSION;
  reply.known_calls = dispatch::KnownCalls();
  reply.driver_version = CUDA_VERSION;
  api::Device device;
  device.name = "recording device";
  device.uuid = std::string(16, '\x5a');
  device.attributes.assign(CU_DEVICE_ATTRIBUTE_MAX, 7);
  device.attribute_status.assign(CU_DEVICE_ATTRIBUTE_MAX, 0);
  reply.devices.push_back(device);
  std::string frame(wire::kFrameHeaderBytes, '\0');
  Encode(reply, &frame);
  wire::FrameHeader header;
  header.call_id = wire::kHelloReply;
  header.args_length = static_cast<uint32_t>(frame.size() - wire::kFrameHeaderBytes);
  wire::StoreFrameHeader(header, frame.data());
  ASSERT_EQ(write(fd, frame.data(), frame.size()), static_cast<ssize_t>(frame.size()));
}

}  // namespace

uint32_t RecordingHandler::Handle(session::Call& call) {
  {
    const std::lock_guard lock(mutex_);
    requests_.push_back({call.header(), std::string(call.args().begin(), call.args().end())});
  }
  return next_.Handle(call);
}

std::vector<Recorded> RecordingHandler::Requests() {
  const std::lock_guard lock(mutex_);
  return requests_;
}

Host& Host::Get() {
  static auto* host = new Host;
  return *host;
}

Host::Host() : table_(driver.Table()) {
  dispatcher_ = std::make_unique<dispatch::Dispatcher>(table_, dispatch::Policy{});
  recorder_ = std::make_unique<RecordingHandler>(*dispatcher_);
  char folder[] = "/tmp/smolvm-loopback-XXXXXX";
  EXPECT_NE(mkdtemp(folder), nullptr);
  const std::string path = std::string(folder) + "/socket";
  std::string error;
  const int listener =
      transport::Listen({.kind = transport::Endpoint::Kind::kUnix, .path = path}, &error);
  EXPECT_GE(listener, 0) << error;
  setenv("SMOLVM_CUDA_ENDPOINT", ("unix:" + path).c_str(), 1);
  unsetenv("CUDA_VISIBLE_DEVICES");
  server_ = std::thread([this, listener] { Serve(listener); });
  EXPECT_EQ(cuInit(0), CUDA_SUCCESS);
  unlink(path.c_str());
  rmdir(folder);
}

void Host::Serve(int listener) {
  const int fd = accept(listener, nullptr, nullptr);
  close(listener);
  wire::FrameHeader header;
  ASSERT_TRUE(ReadExactly(fd, &header, sizeof header));
  std::string hello(header.args_length, '\0');
  ASSERT_TRUE(ReadExactly(fd, hello.data(), hello.size()));
  SendHelloReply(fd);
  session::Session session(std::make_unique<transport::Channel>(fd), *recorder_, {});
  session.Run();
}

void Host::Reset() {
  Settle();
  // Set anew, member by member: the table's functions point at this very object.
  driver.~RecordingDriver();
  new (&driver) driver::RecordingDriver;
  driver.cuCtxGetCurrent = [](CUcontext* context) {
    *context = Fake<CUcontext>(1);
    return CUDA_SUCCESS;
  };
  driver.cuStreamQuery = [](CUstream) { return CUDA_SUCCESS; };
  driver.cuStreamQuery_ptsz = [](CUstream) { return CUDA_SUCCESS; };
  driver.cuEventQuery = [](CUevent) { return CUDA_SUCCESS; };
  driver.cuMemGetInfo_v2 = [](size_t*, size_t*) { return CUDA_SUCCESS; };
  dispatcher_->memory().Add(DeviceMemory(), uint64_t{1} << 30, nullptr);
}

CUresult Host::Settle() {
  size_t free = 0, total = 0;
  return cuMemGetInfo_v2(&free, &total);
}

size_t Host::Count(const std::string& call) {
  const std::lock_guard lock(driver.mutex);
  return static_cast<size_t>(std::count(driver.calls.begin(), driver.calls.end(), call));
}

}  // namespace smolvm::loopback
