// Guests and front ends that break the rules: what they get, and that the device lives on.

#include <fcntl.h>
#include <gmock/gmock.h>

#include "tests/unit/vsock/device_fixture.h"

namespace smolvm::vsock {
namespace {

using HostileGuestTest = DeviceTest;

class HostileFrontEndTest : public DeviceTest {
 protected:
  // For a device that serves one front end only.
  void ExpectDroppedForGood(FakeGuest* guest) {
    const bool dropped = guest->WaitForHangup();
    EXPECT_TRUE(dropped);
    if (!dropped) device_->Stop();
    thread_.join();
    EXPECT_EQ(result_, Device::Result::kFailed);
    device_.reset();
  }
};

TEST_F(HostileGuestTest, PacketsOfUnknownStreamsAreReset) {
  StartBoth();
  for (Op op : {Op::kResponse, Op::kShutdown, Op::kRw, Op::kCreditUpdate, Op::kCreditRequest,
                Op::kInvalid, static_cast<Op>(8), static_cast<Op>(65535)}) {
    guest_->SendPacket(guest_->MakeHeader(1, 2, op));
    ExpectReset(1, 2);
  }
  guest_->SendPacket(guest_->MakeHeader(1, 2, Op::kRst));  // never answered
  ExpectAlive();
}

TEST_F(HostileGuestTest, BogusOpsEndTheirStreamOnly) {
  StartBoth();
  Pair other = Open();
  for (Op op :
       {Op::kInvalid, Op::kRequest, Op::kResponse, static_cast<Op>(8), static_cast<Op>(999)}) {
    Pair p = Open();
    guest_->SendControl(p.guest, op);
    EXPECT_TRUE(guest_->PumpUntil([&] { return p.guest->reset; })) << static_cast<int>(op);
    EXPECT_TRUE(HostSeesEnd(p.host));
  }
  guest_->Write(other.guest, "x", 1);
  EXPECT_EQ(HostRead(other.host, 1), "x");
}

TEST_F(HostileGuestTest, OnlyStreamsToTheHostAreServed) {
  StartBoth();
  Header h = guest_->MakeHeader(1, 7000, Op::kRequest);
  h.type = 2;  // SEQPACKET
  guest_->SendPacket(h);
  ExpectReset(1, 7000);
  h = guest_->MakeHeader(1, 7000, Op::kRequest);
  h.dst_cid = 3;  // another guest
  guest_->SendPacket(h);
  auto packet = guest_->ReceivePacket();
  ASSERT_TRUE(packet);
  EXPECT_EQ(packet->header.op, Op::kRst);
  EXPECT_EQ(packet->header.src_cid, 3u);
  h = guest_->MakeHeader(1, 7000, Op::kRequest);
  h.src_cid = kCid + 1;  // somebody else's name: no answer, and no stream
  guest_->SendPacket(h);
  ExpectAlive();
  EXPECT_EQ(guest_->Find(1, 7000), nullptr);
}

TEST_F(HostileGuestTest, ExtremePortsAreOrdinaryPorts) {
  StartBoth();
  for (uint32_t port : {0u, 1u, 0x8000'0000u, 0xffff'ffffu}) {
    GuestStream* s = guest_->Open(port, 0xffff'ffff - port);
    EXPECT_TRUE(s->established) << port;
    guest_->SendControl(s, Op::kRst);
  }
  ExpectAlive();
}

TEST_F(HostileGuestTest, MoreThanItsCreditEndsTheStream) {
  StartBoth();
  Pair p = Open();
  Header h = guest_->MakeHeader(p.guest->guest_port, 7000, Op::kRw);
  const std::string data(64 * 1024, 'x');
  h.len = static_cast<uint32_t>(data.size());
  for (int i = 0; i < 20; ++i) guest_->SendPacket(h, data);  // nobody reads
  EXPECT_TRUE(guest_->PumpUntil([&] { return p.guest->reset; }));
  ExpectAlive();
}

TEST_F(HostileGuestTest, DataBehindItsOwnEndIsReset) {
  StartBoth();
  Pair p = Open();
  guest_->Shutdown(p.guest, kShutdownSend);
  guest_->Write(p.guest, "x", 1);
  EXPECT_TRUE(guest_->PumpUntil([&] { return p.guest->reset; }));
  EXPECT_TRUE(HostSeesEnd(p.host));
}

TEST_F(HostileGuestTest, LengthsThatLie) {
  StartBoth();
  for (uint32_t len : {1u, 65536u, 0x7fff'ffffu, 0xffff'ffffu}) {
    Header h = guest_->MakeHeader(5, 6, Op::kRw);
    h.len = len;
    guest_->SendPacket(h);
    ExpectReset(5, 6);
  }
  // Less than a header: nobody to answer.
  const uint64_t addr = guest_->ram().Alloc(64);
  for (uint32_t n = 1; n < 44; n += 7) {
    guest_->tx().Add({{addr, n}});
    guest_->Kick(kTxQueue);
  }
  ExpectAlive();
}

TEST_F(HostileGuestTest, CountersThatLieHarmOnlyTheirStream) {
  StartBoth();
  Pair p = Open();
  Header h = guest_->MakeHeader(p.guest->guest_port, 7000, Op::kCreditUpdate);
  h.fwd_cnt = 12345;  // has read what was never sent
  guest_->SendPacket(h);
  ASSERT_TRUE(HostWrite(p.host, "stuck"));
  h.fwd_cnt = 0;
  h.buf_alloc = 0xffff'ffff;
  ExpectAlive();
  EXPECT_EQ(p.guest->in, "");
  guest_->SendPacket(h);
  EXPECT_EQ(guest_->ReadExactly(p.guest, 5), "stuck");
}

// Answers need receive buffers. A guest that sends and supplies none is left waiting.
TEST_F(HostileGuestTest, AnswersThatItDoesNotTakeAreBounded) {
  StartBoth();
  guest_->repost = false;
  const int posted = 32, count = posted + static_cast<int>(kMaxResets) + 20;
  for (int i = 0; i < count; ++i) {
    guest_->SendPacket(guest_->MakeHeader(static_cast<uint32_t>(i), 2, Op::kRw));
  }
  int answers = 0;
  while (answers < posted && guest_->ReceivePacket()) ++answers;
  EXPECT_EQ(answers, posted);
  guest_->repost = true;
  guest_->PostReceiveBuffers(posted);
  while (answers < count && guest_->ReceivePacket()) ++answers;
  EXPECT_EQ(answers, count) << "none is lost";
  ExpectAlive();
}

TEST_F(HostileGuestTest, OpeningAndResettingForEverNeedsNoMemory) {
  StartBoth();
  guest_->repost = false;  // so that soon nothing can be answered
  for (int i = 0; i < 5000; ++i) {
    guest_->SendPacket(guest_->MakeHeader(77, 7000, Op::kRequest));
    guest_->SendPacket(guest_->MakeHeader(77, 7000, Op::kRst));
  }
  guest_->repost = true;
  ExpectAlive();
}

// What breaks a ring takes the streams along, is told to the front end, and ends with a new start.
class BrokenRingTest : public DeviceTest {
 protected:
  void ExpectBrokenAndRecovered(const Pair& stream) {
    guest_->repost = true;
    EXPECT_TRUE(guest_->WaitForRingError());
    EXPECT_TRUE(HostSeesEnd(stream.host));
    guest_->Stop();
    guest_->ResetAndStart();
    ExpectAlive();
  }
};

TEST_F(BrokenRingTest, LoopOfDescriptors) {
  StartBoth();
  Pair p = Open();
  const uint64_t addr = guest_->ram().Alloc(64);
  *guest_->tx().desc(0) = {addr, 1, kNext, 1};
  *guest_->tx().desc(1) = {addr, 1, kNext, 0};
  guest_->tx().AddRaw(0);
  guest_->Kick(kTxQueue);
  ExpectBrokenAndRecovered(p);
}

TEST_F(BrokenRingTest, AddressOutsideMemory) {
  StartBoth();
  Pair p = Open();
  guest_->tx().Add({{UINT64_MAX - 20, 44}});
  guest_->Kick(kTxQueue);
  ExpectBrokenAndRecovered(p);
}

TEST_F(BrokenRingTest, ReceiveBufferWithoutRoom) {
  GuestOptions options;
  options.queue_size = 2;
  options.rx_header = 0;  // one descriptor each
  StartBoth(options);
  Pair p = Open();
  guest_->rx().Add({{guest_->ram().Alloc(64), 44, true}});  // a header, and not a byte more
  guest_->Kick(kRxQueue);
  guest_->repost = false;
  ASSERT_TRUE(HostWrite(p.host, "a"));
  ASSERT_TRUE(guest_->ReceivePacket());
  ExpectBrokenAndRecovered(p);
}

TEST_F(BrokenRingTest, IndexThatJumps) {
  StartBoth();
  Pair p = Open();
  *guest_->rx().avail_idx() += 1000;
  ASSERT_TRUE(HostWrite(p.host, "x"));
  ExpectBrokenAndRecovered(p);
}

// --- Front ends

struct BadMessage {
  const char* name;
  uint32_t request;
  std::vector<uint8_t> payload;
  int fds = 0;
  uint32_t flags = 1;
};

std::vector<BadMessage> BadMessages() {
  using namespace request;  // NOLINT: numbers of the specification
  auto pack = [](auto... v) { return FakeGuest::Pack(v...); };
  const uint32_t zero = 0;
  return {
      {"unknown request", 99, {}},
      {"request 0", 0, {}},
      {"wrong version", kGetFeatures, {}, 0, 2},
      {"a reply", kGetFeatures, {}, 0, 5},
      {"payload far too large", kGetFeatures, std::vector<uint8_t>(513)},
      {"short features", kSetFeatures, pack(uint32_t{0})},
      {"features that were not offered", kSetFeatures, pack(uint64_t{1} << 34)},
      {"protocol features that were not offered", kSetProtocolFeatures, pack(uint64_t{1})},
      {"set config", kSetConfig, pack(zero, zero, zero)},
      {"short memory table", kSetMemTable, pack(zero)},
      {"no regions", kSetMemTable, pack(zero, zero)},
      {"nine regions", kSetMemTable, pack(uint32_t{9}, zero), 8},
      {"2^32 - 1 regions", kSetMemTable, pack(UINT32_MAX, zero)},
      {"region without descriptor", kSetMemTable,
       pack(uint32_t{1}, zero, uint64_t{0}, uint64_t{4096}, uint64_t{0}, uint64_t{0})},
      {"region of no file", kSetMemTable,
       pack(uint32_t{1}, zero, uint64_t{0}, uint64_t{4096}, uint64_t{0}, uint64_t{0}), 1},
      {"descriptor without region", kSetMemTable, pack(zero, zero), 1},
      {"ring 2 size", kSetVringNum, pack(uint32_t{2}, uint32_t{8})},
      {"ring size 0", kSetVringNum, pack(zero, zero)},
      {"ring size 3", kSetVringNum, pack(zero, uint32_t{3})},
      {"ring size 2^31", kSetVringNum, pack(zero, uint32_t{1} << 31)},
      {"ring base 65536", kSetVringBase, pack(zero, uint32_t{65536})},
      {"ring UINT32_MAX", kSetVringBase, pack(UINT32_MAX, zero)},
      {"stop ring 7", kGetVringBase, pack(uint32_t{7}, zero)},
      {"ring addresses, short", kSetVringAddr, pack(zero, zero, uint64_t{0})},
      {"ring addresses with logging", kSetVringAddr,
       pack(zero, uint32_t{1}, uint64_t{0}, uint64_t{0}, uint64_t{0}, uint64_t{0})},
      {"kick before memory", kSetVringKick, pack(uint64_t{0}), 1},
      {"kick without descriptor", kSetVringKick, pack(uint64_t{0})},
      {"kick of ring 255", kSetVringKick, pack(uint64_t{255}), 1},
      {"polled ring", kSetVringKick, pack(uint64_t{1 << 8})},
      {"call with two descriptors", kSetVringCall, pack(uint64_t{0}), 2},
      {"too many descriptors", kSetVringCall, pack(uint64_t{0}), 12},
      {"enable before features", kSetVringEnable, pack(zero, uint32_t{1})},
  };
}

TEST_F(HostileFrontEndTest, WhoeverBreaksTheProtocolIsDroppedAndTheNextIsServed) {
  StartDevice();
  for (const BadMessage& bad : BadMessages()) {
    FakeGuest guest;
    ASSERT_TRUE(guest.Connect(config_.socket_path));
    UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
    guest.Send(bad.request, bad.payload, std::vector<int>(static_cast<size_t>(bad.fds), null.get()),
               false, bad.flags);
    EXPECT_TRUE(guest.WaitForHangup()) << bad.name;
  }
  guest_ = std::make_unique<FakeGuest>();
  ASSERT_TRUE(guest_->Connect(config_.socket_path));
  guest_->Start();
  ExpectAlive();
}

TEST_F(HostileFrontEndTest, MisplacedRingsAreRefused) {
  StartDevice();
  for (uint64_t desc : {uint64_t{0}, GuestRam::kLowUser + 8,
                        GuestRam::kLowUser + GuestRam::kHalf - 16, UINT64_MAX - 15}) {
    FakeGuest guest;
    ASSERT_TRUE(guest.Connect(config_.socket_path));
    guest.Send(request::kSetProtocolFeatures, FakeGuest::Pack(uint64_t{1u << 3 | 1u << 9}));
    guest.SendMemTable();
    guest.Send(request::kSetVringNum, FakeGuest::Pack(uint32_t{0}, uint32_t{64}));
    guest.Send(request::kSetVringAddr,
               FakeGuest::Pack(uint32_t{0}, uint32_t{0}, desc, GuestRam::kLowUser + 0x2000,
                               GuestRam::kLowUser + 0x3000, uint64_t{0}));
    UniqueFd kick(eventfd(0, EFD_CLOEXEC));
    EXPECT_EQ(guest.Ack(request::kSetVringKick, FakeGuest::Pack(uint64_t{0}), {kick.get()}), 1u);
    EXPECT_TRUE(guest.WaitForHangup());
  }
}

TEST_F(HostileFrontEndTest, MissingMemoryIsRefusedLoudly) {
  config_.once = true;
  StartDevice();
  FakeGuest guest;
  ASSERT_TRUE(guest.Connect(config_.socket_path));
  guest.Send(request::kSetProtocolFeatures, FakeGuest::Pack(uint64_t{1u << 3 | 1u << 9}));
  EXPECT_EQ(guest.Ack(request::kSetMemTable, FakeGuest::Pack(uint32_t{0}, uint32_t{0})), 1u);
  ExpectDroppedForGood(&guest);
}

// Without share=on the memory is there, but nothing that the guest writes is in it.
TEST_F(HostileFrontEndTest, MemoryThatIsNotSharedIsNoticed) {
  config_.once = true;
  StartDevice();
  FakeGuest guest;
  ASSERT_TRUE(guest.Connect(config_.socket_path));
  guest.Start(false);
  guest.Send(request::kGetFeatures, {});
  ASSERT_TRUE(guest.Reply());  // both rings are started, as they are when a guest's driver runs
  guest.KickAnyway(kRxQueue);
  guest.KickAnyway(kTxQueue);
  ExpectDroppedForGood(&guest);
}

// As above, with the first ring's kick seen before the second ring is known at all.
TEST_F(HostileFrontEndTest, MemoryThatIsNotSharedIsNoticedWhicheverRingStartsFirst) {
  config_.once = true;
  StartDevice();
  FakeGuest guest({.protocol_features = false});
  ASSERT_TRUE(guest.Connect(config_.socket_path));
  guest.Send(request::kSetOwner, {});
  guest.Send(request::kSetFeatures, FakeGuest::Pack(kFeatureVersion1));
  guest.SendMemTable();
  for (uint32_t ring : {kRxQueue, kTxQueue}) {
    guest.SetupRing(ring, 0);
    for (int i = 0; i < 2; ++i) {  // the second answer comes after the kick was read
      guest.Send(request::kGetFeatures, {});
      ASSERT_TRUE(guest.Reply());
    }
  }
  guest.KickAnyway(kRxQueue);
  guest.KickAnyway(kTxQueue);
  ExpectDroppedForGood(&guest);
}

}  // namespace
}  // namespace smolvm::vsock
