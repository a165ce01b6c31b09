// A device on a thread of its own, for tests: connections of the guest end in socket pairs whose
// other ends the test gets with Accept().
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <condition_variable>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "host-daemon/vsock/device.h"
#include "tests/unit/vsock/fake_guest.h"

namespace smolvm::vsock {

constexpr uint32_t kRefusedPort = 9;

class DeviceTest : public ::testing::Test {
 protected:
  DeviceTest() {
    char name[] = "/tmp/vsock-test-XXXXXX";
    if (mkdtemp(name) == nullptr) abort();
    dir_ = name;
    config_.socket_path = dir_ + "/socket";
    config_.guest_cid = kCid;
  }
  ~DeviceTest() override {
    StopDevice();
    rmdir(dir_.c_str());
  }

  void StartDevice() {
    device_ = std::make_unique<Device>(config_, [this](uint32_t guest_port, uint32_t port) {
      return OnConnect(guest_port, port);
    });
    std::string error;
    ASSERT_TRUE(device_->Listen(&error)) << error;
    thread_ = std::thread([this] { result_ = device_->Run(); });
  }
  void StopDevice() {
    if (!device_) return;
    device_->Stop();
    thread_.join();
    device_.reset();
  }
  // A device with a guest that is up.
  void StartBoth(GuestOptions options = {}) {
    StartDevice();
    guest_ = std::make_unique<FakeGuest>(options);
    ASSERT_TRUE(guest_->Connect(config_.socket_path));
    guest_->Start();
  }

  // The host's end of the stream from `guest_port`.
  UniqueFd Accept(uint32_t guest_port) {
    std::unique_lock lock(mutex_);
    const bool there = accepted_.wait_for(lock, std::chrono::milliseconds(kPatienceMs),
                                          [&] { return ends_.count(guest_port) != 0; });
    EXPECT_TRUE(there);
    return there ? std::move(ends_.extract(guest_port).mapped()) : UniqueFd();
  }
  struct Pair {
    GuestStream* guest;
    UniqueFd host;
  };
  Pair Open(uint32_t port = 7000) {
    GuestStream* s = guest_->Open(port);
    EXPECT_TRUE(s->established);
    return {s, Accept(s->guest_port)};
  }

  static bool HostWrite(const UniqueFd& fd, const std::string& data) {
    return send(fd.get(), data.data(), data.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(data.size());
  }
  // Waits for all `size` bytes; fewer at the end of the stream.
  static std::string HostRead(const UniqueFd& fd, size_t size) {
    std::string data;
    std::string chunk(64 * 1024, '\0');
    while (data.size() < size) {
      pollfd p = {fd.get(), POLLIN, 0};
      if (poll(&p, 1, kPatienceMs) <= 0) break;
      const ssize_t n = recv(fd.get(), chunk.data(), std::min(chunk.size(), size - data.size()), 0);
      if (n <= 0) break;
      data.append(chunk, 0, static_cast<size_t>(n));
    }
    return data;
  }
  static bool HostSeesEnd(const UniqueFd& fd) { return HostRead(fd, 1).empty(); }

  // `size` bytes that differ from place to place.
  static std::string Noise(size_t size, uint32_t seed = 1) {
    std::string data(size, '\0');
    for (char& c : data) c = static_cast<char>((seed = seed * 1664525 + 1013904223) >> 24);
    return data;
  }

  void ExpectReset(uint32_t guest_port, uint32_t host_port) {
    const auto packet = guest_->ReceivePacket();
    ASSERT_TRUE(packet);
    EXPECT_EQ(packet->header.op, Op::kRst);
    EXPECT_EQ(packet->header.dst_port, guest_port);
    EXPECT_EQ(packet->header.src_port, host_port);
  }
  // The device still serves its guest.
  void ExpectAlive() {
    Pair p = Open();
    guest_->Write(p.guest, "ping", 4);
    EXPECT_EQ(HostRead(p.host, 4), "ping");
    ASSERT_TRUE(HostWrite(p.host, "pong"));
    EXPECT_EQ(guest_->ReadExactly(p.guest, 4), "pong");
  }

  DeviceConfig config_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<FakeGuest> guest_;
  std::thread thread_;
  Device::Result result_ = Device::Result::kStopped;  // valid once thread_ has ended

 private:
  int OnConnect(uint32_t guest_port, uint32_t port) {
    int ends[2];
    if (port == kRefusedPort || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      return -1;
    }
    std::lock_guard lock(mutex_);
    ends_[guest_port] = UniqueFd(ends[1]);
    accepted_.notify_all();
    return ends[0];
  }
  std::string dir_;
  std::mutex mutex_;
  std::condition_variable accepted_;
  std::map<uint32_t, UniqueFd> ends_;
};

}  // namespace smolvm::vsock
