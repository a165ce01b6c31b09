// The device as its front end and its owner see it.

#include "host-daemon/vsock/device.h"

#include <sys/stat.h>

#include <cstring>
#include <fstream>

#include "tests/unit/vsock/device_fixture.h"

namespace smolvm::vsock {
namespace {

using FrontEndTest = DeviceTest;

uint64_t Value(const std::optional<std::vector<uint8_t>>& reply) {
  uint64_t value = 0;
  if (reply && reply->size() == 8) std::memcpy(&value, reply->data(), 8);
  return value;
}

TEST_F(FrontEndTest, OffersWhatItCan) {
  StartDevice();
  FakeGuest guest;
  ASSERT_TRUE(guest.Connect(config_.socket_path));
  guest.Send(request::kGetFeatures, {});
  EXPECT_EQ(Value(guest.Reply()),
            kFeatureVersion1 | kFeatureProtocol | kFeatureEventIdx | kFeatureIndirect);
  guest.Send(request::kGetProtocolFeatures, {});
  EXPECT_EQ(Value(guest.Reply()), 1u << 3 | 1u << 9);
}

TEST_F(FrontEndTest, ConfigurationIsTheCid) {
  StartDevice();
  FakeGuest guest;
  ASSERT_TRUE(guest.Connect(config_.socket_path));
  auto config = [&](uint32_t offset, uint32_t size, size_t bytes) {
    auto payload = FakeGuest::Pack(offset, size, uint32_t{0});
    payload.resize(12 + bytes, 0xff);
    guest.Send(request::kGetConfig, payload);
    auto reply = guest.Reply();
    return reply ? *reply : std::vector<uint8_t>{1};
  };
  EXPECT_EQ(config(0, 8, 8), FakeGuest::Pack(0u, 8u, 0u, kCid));
  EXPECT_EQ(config(0, 4, 4), FakeGuest::Pack(0u, 4u, 0u, static_cast<uint32_t>(kCid)));
  EXPECT_EQ(config(4, 4, 4), FakeGuest::Pack(4u, 4u, 0u, 0u));
  // Errors have no payload.
  EXPECT_TRUE(config(0, 9, 9).empty());
  EXPECT_TRUE(config(8, 1, 1).empty());
  EXPECT_TRUE(config(UINT32_MAX, 2, 2).empty());
  EXPECT_TRUE(config(0, UINT32_MAX, 8).empty());
  EXPECT_TRUE(config(0, 4, 8).empty());
}

TEST_F(FrontEndTest, MessagesMayArriveByteByByte) {
  StartDevice();
  FakeGuest guest;
  ASSERT_TRUE(guest.Connect(config_.socket_path));
  guest.Send(request::kSetOwner, {});
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  config_.socket_path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  guest.Disconnect();
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  const auto bytes = FakeGuest::Pack(request::kGetConfig, 1u, 20u, 0u, 8u, 0u, uint64_t{0});
  for (uint8_t b : bytes) {
    ASSERT_EQ(send(fd.get(), &b, 1, MSG_NOSIGNAL), 1);
    std::this_thread::yield();
  }
  EXPECT_EQ(HostRead(fd, 32).size(), 32u);
}

TEST_F(FrontEndTest, CallDescriptorsMayBeReplacedWhileRunning) {
  StartBoth();
  Pair p = Open();
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(HostWrite(p.host, "x"));
    // The interrupt for it goes to the old one or to the new one.
    guest_->ReplaceCallFd(kRxQueue);
    guest_->ReplaceCallFd(kTxQueue);
    EXPECT_EQ(guest_->ReadExactly(p.guest, 1), "x") << i;
  }
}

TEST_F(FrontEndTest, PauseAndResumeKeepStreams) {
  StartBoth();
  Pair p = Open();
  guest_->Write(p.guest, "before", 6);
  EXPECT_EQ(HostRead(p.host, 6), "before");
  guest_->Stop();
  ASSERT_TRUE(HostWrite(p.host, "meanwhile"));
  guest_->Resume();
  EXPECT_EQ(guest_->ReadExactly(p.guest, 9), "meanwhile");
  guest_->Write(p.guest, "after", 5);
  EXPECT_EQ(HostRead(p.host, 5), "after");
}

TEST_F(FrontEndTest, RebootOfTheGuestEndsStreams) {
  StartBoth();
  Pair p = Open();
  guest_->Stop();
  guest_->ResetAndStart();
  EXPECT_TRUE(HostSeesEnd(p.host));
  ExpectAlive();
}

// Each start kicks each ring, as QEMU does; that alone is no sign of memory that is not shared.
TEST_F(FrontEndTest, GuestMayBootOftenBeforeItsDriverIsLoaded) {
  StartDevice();
  guest_ = std::make_unique<FakeGuest>();
  ASSERT_TRUE(guest_->Connect(config_.socket_path));
  guest_->Start(false);
  guest_->Stop();
  for (int i = 0; i < 10; ++i) {
    guest_->ResetAndStart(false);
    guest_->Stop();
  }
  guest_->ResetAndStart();
  ExpectAlive();
}

TEST_F(FrontEndTest, MemoryMayBeSharedAnewWhileRunning) {
  StartBoth();
  Pair p = Open();
  guest_->SendMemTable();
  guest_->Write(p.guest, "x", 1);
  EXPECT_EQ(HostRead(p.host, 1), "x");
  ExpectAlive();
}

TEST_F(FrontEndTest, FrontEndsComeAndGo) {
  StartBoth();
  for (int i = 0; i < 5; ++i) {
    Pair p = Open();
    guest_->Disconnect();
    EXPECT_TRUE(HostSeesEnd(p.host)) << "the guest's streams go with it";
    guest_ = std::make_unique<FakeGuest>();
    ASSERT_TRUE(guest_->Connect(config_.socket_path));
    guest_->Start();
    ExpectAlive();
  }
}

TEST_F(FrontEndTest, OnceEndsWithTheFirstFrontEndThatSpeaks) {
  config_.once = true;
  StartDevice();
  {
    FakeGuest probe;  // as one who only looks whether somebody listens
    ASSERT_TRUE(probe.Connect(config_.socket_path));
  }
  guest_ = std::make_unique<FakeGuest>();
  ASSERT_TRUE(guest_->Connect(config_.socket_path));
  guest_->Start();
  ExpectAlive();
  guest_->Disconnect();
  thread_.join();
  EXPECT_EQ(result_, Device::Result::kFrontEndGone);
  device_.reset();
}

TEST_F(FrontEndTest, RegionsOfGuestMemoryCanBeHad) {
  StartBoth();
  ExpectAlive();
  const auto regions = device_->GuestRegions();
  ASSERT_EQ(regions.size(), 2u);
  EXPECT_EQ(regions[0].guest_addr, GuestRam::kLowGuest);
  EXPECT_EQ(regions[1].guest_addr, GuestRam::kHighGuest);
  EXPECT_EQ(regions[1].file_offset, GuestRam::kHalf);
  EXPECT_EQ(regions[1].size, GuestRam::kHalf);
  const uint64_t place = guest_->ram().AllocHigh(8);
  std::memcpy(guest_->ram().At(place), "shared!", 8);
  char text[8];
  ASSERT_EQ(pread(regions[1].fd.get(), text, 8,
                  static_cast<off_t>(regions[1].file_offset + place - GuestRam::kHighGuest)),
            8);
  EXPECT_STREQ(text, "shared!");
  guest_->Disconnect();
  guest_ = std::make_unique<FakeGuest>();
  ASSERT_TRUE(guest_->Connect(config_.socket_path));
  guest_->Send(request::kGetFeatures, {});
  ASSERT_TRUE(guest_->Reply());
  EXPECT_TRUE(device_->GuestRegions().empty());
}

// --- The socket

class ListenTest : public DeviceTest {
 protected:
  bool Listens(std::string* error) {
    Device device(config_, nullptr);
    return device.Listen(error);
  }
  std::string error_;
};

TEST_F(ListenTest, IsForItsOwnerOnlyAndIsRemoved) {
  struct stat st;
  {
    Device device(config_, nullptr);
    ASSERT_TRUE(device.Listen(&error_)) << error_;
    ASSERT_EQ(stat(config_.socket_path.c_str(), &st), 0);
    EXPECT_EQ(st.st_mode & 0777, 0600u);
  }
  EXPECT_NE(stat(config_.socket_path.c_str(), &st), 0);
}

TEST_F(ListenTest, RemovesASocketThatNobodyHolds) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  config_.socket_path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  {
    UniqueFd dead(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(bind(dead.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  EXPECT_TRUE(Listens(&error_)) << error_;
}

TEST_F(ListenTest, LeavesALiveSocketAlone) {
  StartDevice();
  EXPECT_FALSE(Listens(&error_));
  EXPECT_NE(error_.find("in use"), std::string::npos);
  guest_ = std::make_unique<FakeGuest>();
  ASSERT_TRUE(guest_->Connect(config_.socket_path));
  guest_->Start();
  ExpectAlive();
}

TEST_F(ListenTest, LeavesAFileAlone) {
  std::ofstream(config_.socket_path) << "precious";
  EXPECT_FALSE(Listens(&error_));
  std::string text;
  std::ifstream(config_.socket_path) >> text;
  EXPECT_EQ(text, "precious");
  unlink(config_.socket_path.c_str());
}

TEST_F(ListenTest, DoesNotRemoveItsSuccessorsSocket) {
  struct stat st;
  auto first = std::make_unique<Device>(config_, nullptr);
  ASSERT_TRUE(first->Listen(&error_));
  unlink(config_.socket_path.c_str());
  Device second(config_, nullptr);
  ASSERT_TRUE(second.Listen(&error_));
  first.reset();
  EXPECT_EQ(stat(config_.socket_path.c_str(), &st), 0);
}

TEST_F(ListenTest, RefusesWhatCannotBe) {
  const std::string path = config_.socket_path;
  config_.socket_path = std::string(200, 'x');
  EXPECT_FALSE(Listens(&error_));
  config_.socket_path = "";
  EXPECT_FALSE(Listens(&error_));
  config_.socket_path = "/nowhere/at/all";
  EXPECT_FALSE(Listens(&error_));
  config_.socket_path = path;
  for (uint64_t cid : {uint64_t{0}, uint64_t{2}, uint64_t{UINT32_MAX}, uint64_t{1} << 32}) {
    config_.guest_cid = cid;
    EXPECT_FALSE(Listens(&error_)) << cid;
  }
}

}  // namespace
}  // namespace smolvm::vsock
