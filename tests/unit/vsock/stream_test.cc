// What programs see: streams through the whole device, with a guest that behaves.

#include <gmock/gmock.h>

#include "tests/unit/vsock/device_fixture.h"

namespace smolvm::vsock {
namespace {

struct Variant {
  const char* name;
  GuestOptions options;
};

class VariantTest : public DeviceTest, public ::testing::WithParamInterface<Variant> {};

GuestOptions With(void (*change)(GuestOptions*)) {
  GuestOptions o;
  change(&o);
  return o;
}

INSTANTIATE_TEST_SUITE_P(
    Guests, VariantTest,
    ::testing::Values(
        Variant{"Default", {}},
        Variant{"NoEventIdx", With([](GuestOptions* o) { o->event_idx = false; })},
        Variant{"NoIndirect", With([](GuestOptions* o) { o->indirect = false; })},
        Variant{"NoProtocolFeatures", With([](GuestOptions* o) { o->protocol_features = false; })},
        Variant{"HeaderAndPayloadInOneBuffer", With([](GuestOptions* o) { o->rx_header = 0; })},
        Variant{"HeaderCutInTwo", With([](GuestOptions* o) { o->rx_header = 17; })},
        Variant{"PayloadInHeaderBuffer", With([](GuestOptions* o) { o->rx_header = 100; })},
        Variant{"OneByteBuffers", With([](GuestOptions* o) { o->rx_buffer = 1; })},
        Variant{"HugeBuffers", With([](GuestOptions* o) { o->rx_buffer = 65536; })},
        Variant{"SmallRing", With([](GuestOptions* o) { o->queue_size = 4; })}),
    [](const auto& info) { return info.param.name; });

TEST_P(VariantTest, TalksBothWays) {
  StartBoth(GetParam().options);
  Pair p = Open();
  const std::string out = Noise(3000, 1), in = Noise(3000, 2);
  EXPECT_EQ(guest_->Write(p.guest, out.data(), out.size()), out.size());
  EXPECT_EQ(HostRead(p.host, out.size()), out);
  ASSERT_TRUE(HostWrite(p.host, in));
  EXPECT_EQ(guest_->ReadExactly(p.guest, in.size()), in);
}

using StreamTest = DeviceTest;

TEST_F(StreamTest, RefusedConnectionIsReset) {
  StartBoth();
  GuestStream* s = guest_->Open(kRefusedPort);
  EXPECT_TRUE(s->reset);
  EXPECT_FALSE(s->established);
  ExpectAlive();
}

TEST_F(StreamTest, PacketsMaySpreadOverAnyDescriptors) {
  StartBoth();
  Pair p = Open();
  const std::string data = Noise(1000);
  const std::vector<std::vector<uint32_t>> kCuts = {
      {}, {44}, {1, 43}, {20, 30}, {44, 1, 1, 1}, {44, 300, 300}, std::vector<uint32_t>(20, 7)};
  for (bool indirect : {false, true}) {
    for (const auto& cuts : kCuts) {
      Header h = guest_->MakeHeader(p.guest->guest_port, 7000, Op::kRw);
      h.len = 1000;
      guest_->SendPacket(h, data, cuts, indirect);
      p.guest->sent += 1000;
      EXPECT_EQ(HostRead(p.host, 1000), data);
    }
  }
}

// A guest fills its own buffer's worth of credit exactly, and then waits for the device's word.
TEST_F(StreamTest, CreditReturnsAtTheEdgeOfTheGuestsBuffer) {
  config_.limits.buffer = 1 << 20;
  StartBoth();
  for (size_t size : {262143u, 262144u, 262145u, 524288u}) {
    Pair p = Open();
    const std::string data = Noise(size);
    std::string got;
    std::thread host([&] { got = HostRead(p.host, size); });
    size_t done = 0;
    while (done < size) {
      const size_t n = guest_->Write(p.guest, data.data() + done, size - done);
      done += n;
      if (n == 0 && !guest_->Pump()) break;
    }
    EXPECT_EQ(done, size);
    host.join();
    EXPECT_EQ(got, data);
  }
}

TEST_F(StreamTest, HostThatDoesNotReadHoldsTheGuestUpAndLosesNothing) {
  StartBoth();
  Pair p = Open();
  int send_buffer = 0;
  socklen_t len = sizeof(send_buffer);
  getsockopt(p.host.get(), SOL_SOCKET, SO_SNDBUF, &send_buffer, &len);
  const std::string data = Noise(4 << 20);
  size_t done = 0;
  while (true) {
    const size_t n = guest_->Write(p.guest, data.data() + done, data.size() - done);
    done += n;
    if (n > 0) continue;
    // Out of credit: either an update is on its way, or the device is full. It answers this request
    // last, so what the answer does not bring will not come by itself.
    const uint32_t before = p.guest->Credit();
    guest_->SendControl(p.guest, Op::kCreditRequest);
    ASSERT_TRUE(guest_->Pump());
    while (guest_->Pump(50)) {
    }
    if (p.guest->Credit() == before) break;
  }
  EXPECT_GE(done, config_.limits.buffer);
  EXPECT_LE(done, config_.limits.buffer + 2u * static_cast<uint32_t>(send_buffer));
  std::string got;
  std::thread host([&] { got = HostRead(p.host, data.size()); });
  while (done < data.size()) {
    const size_t n = guest_->Write(p.guest, data.data() + done, data.size() - done);
    done += n;
    if (n == 0 && !guest_->Pump()) break;
  }
  host.join();
  EXPECT_TRUE(got == data);
}

TEST_F(StreamTest, GuestThatDoesNotReadHoldsTheHostUpAndLosesNothing) {
  StartBoth();
  Pair p = Open();
  const std::string data = Noise(2 << 20);
  std::thread host([&] {
    for (size_t at = 0; at < data.size(); at += 65536) HostWrite(p.host, data.substr(at, 65536));
  });
  // The guest's buffer fills, in at most as many packets as are allowed. (Dispatch checks the
  // size.)
  ASSERT_TRUE(guest_->PumpUntil([&] { return p.guest->in.size() >= 250'000; }));
  EXPECT_EQ(guest_->ReadExactly(p.guest, data.size()), data);
  host.join();
}

// Linux from 6.12.92 on resets a stream that has many unread packets, however small.
TEST_F(StreamTest, ManySmallWritesBecomeFewPackets) {
  StartBoth();
  Pair p = Open();
  const std::string data = Noise(4000 * 24);
  std::thread host([&] {
    for (size_t at = 0; at < data.size(); at += 24) HostWrite(p.host, data.substr(at, 24));
  });
  // The guest takes packets and reads none, until it has been asked about it several times; or
  // until all has come, where the host's writes were quicker than the device and became one.
  EXPECT_TRUE(guest_->PumpUntil(
      [&] { return guest_->credit_requests > 5 || p.guest->in.size() == data.size(); }));
  EXPECT_LE(p.guest->most_unread_packets, 64u);
  EXPECT_EQ(guest_->ReadExactly(p.guest, data.size()), data);
  host.join();
}

// --- Ends

TEST_F(StreamTest, GuestHalfCloseLetsTheHostAnswer) {
  StartBoth();
  Pair p = Open();
  guest_->Write(p.guest, "question", 8);
  guest_->Shutdown(p.guest, kShutdownSend);
  EXPECT_EQ(HostRead(p.host, 100), "question") << "and then the end";
  ASSERT_TRUE(HostWrite(p.host, "answer"));
  EXPECT_EQ(guest_->ReadExactly(p.guest, 6), "answer");
  p.host.reset();
  EXPECT_TRUE(guest_->PumpUntil([&] { return p.guest->shut == kShutdownBoth; }));
}

TEST_F(StreamTest, HostHalfCloseLetsTheGuestAnswer) {
  StartBoth();
  Pair p = Open();
  ASSERT_TRUE(HostWrite(p.host, "question"));
  shutdown(p.host.get(), SHUT_WR);
  EXPECT_EQ(guest_->ReadExactly(p.guest, 8), "question");
  EXPECT_TRUE(guest_->PumpUntil([&] { return p.guest->shut == kShutdownSend; }));
  guest_->Write(p.guest, "answer", 6);
  EXPECT_EQ(HostRead(p.host, 6), "answer");
  guest_->Shutdown(p.guest, kShutdownBoth);
  EXPECT_TRUE(guest_->PumpUntil([&] { return p.guest->reset; }));
  EXPECT_TRUE(HostSeesEnd(p.host));
}

TEST_F(StreamTest, HostCloseBringsAllBytesThenTheEnd) {
  StartBoth();
  Pair p = Open();
  const std::string data = Noise(150'000);
  ASSERT_TRUE(HostWrite(p.host, data));
  p.host.reset();
  EXPECT_EQ(guest_->ReadExactly(p.guest, data.size()), data);
  EXPECT_TRUE(guest_->PumpUntil([&] { return p.guest->shut == kShutdownBoth; }));
  guest_->SendControl(p.guest, Op::kRst);
  ExpectAlive();
}

TEST_F(StreamTest, GuestCloseIsConfirmedAtOnceAndTheHostGetsAllBytes) {
  StartBoth();
  Pair p = Open();
  const std::string data = Noise(262144);
  ASSERT_EQ(guest_->Write(p.guest, data.data(), data.size()), data.size());
  guest_->Shutdown(p.guest, kShutdownBoth);
  EXPECT_TRUE(guest_->PumpUntil([&] { return p.guest->reset; })) << "before the host read a byte";
  // The same ports again, while the old stream still drains.
  GuestStream* again = guest_->Open(7000, p.guest->guest_port);
  EXPECT_TRUE(again->established);
  EXPECT_EQ(HostRead(p.host, data.size() + 1), data);
}

TEST_F(StreamTest, GuestResetEndsTheHostsSocket) {
  StartBoth();
  Pair p = Open();
  guest_->SendControl(p.guest, Op::kRst);
  EXPECT_TRUE(HostSeesEnd(p.host));
}

TEST_F(StreamTest, HostThatReadsNoMoreStopsTheGuest) {
  StartBoth();
  Pair p = Open();
  shutdown(p.host.get(), SHUT_RD);
  guest_->Write(p.guest, "lost", 4);
  EXPECT_TRUE(guest_->PumpUntil([&] { return p.guest->shut == kShutdownReceive; }));
  ASSERT_TRUE(HostWrite(p.host, "still"));
  EXPECT_EQ(guest_->ReadExactly(p.guest, 5), "still");
}

TEST_F(StreamTest, GuestThatReadsNoMoreStopsTheHost) {
  StartBoth();
  Pair p = Open();
  guest_->Shutdown(p.guest, kShutdownReceive);
  guest_->Write(p.guest, "x", 1);
  EXPECT_EQ(HostRead(p.host, 1), "x");
  EXPECT_FALSE(HostWrite(p.host, "y"));
  EXPECT_EQ(errno, EPIPE);
}

// --- Many

TEST_F(StreamTest, LimitOfStreamsHoldsAndFreesUp) {
  config_.limits.max_connections = 50;
  StartBoth();
  std::vector<Pair> pairs;
  for (int i = 0; i < 50; ++i) pairs.push_back(Open());
  EXPECT_TRUE(guest_->Open(7000)->reset);
  guest_->Shutdown(pairs[7].guest, kShutdownBoth);
  EXPECT_TRUE(guest_->PumpUntil([&] { return pairs[7].guest->reset; }));
  ExpectAlive();
  for (int i = 0; i < 50; ++i) {
    if (i == 7) continue;
    guest_->Write(pairs[i].guest, "abc", 3);
    EXPECT_EQ(HostRead(pairs[i].host, 3), "abc") << i;
  }
}

TEST_F(StreamTest, BulkBothWaysOnSeveralStreams) {
  StartBoth();
  constexpr int kStreams = 6;
  constexpr size_t kBytes = 3 << 20;
  std::vector<Pair> pairs;
  std::vector<std::thread> hosts;
  std::vector<std::string> out(kStreams), in(kStreams), got_host(kStreams), got_guest(kStreams);
  for (int i = 0; i < kStreams; ++i) {
    pairs.push_back(Open());
    out[i] = Noise(kBytes, 100 + static_cast<uint32_t>(i));
    in[i] = Noise(kBytes, 200 + static_cast<uint32_t>(i));
  }
  for (int i = 0; i < kStreams; ++i) {
    hosts.emplace_back([&, i] {  // one thread reads, one writes
      std::thread writer([&] {
        for (size_t at = 0; at < kBytes; at += 10'000) {
          if (!HostWrite(pairs[i].host, in[i].substr(at, 10'000))) return;
        }
      });
      got_host[i] = HostRead(pairs[i].host, kBytes);
      writer.join();
    });
  }
  std::vector<size_t> sent(kStreams);
  bool moving = true;
  auto finished = [&] {
    for (int i = 0; i < kStreams; ++i) {
      if (sent[i] < kBytes || got_guest[i].size() < kBytes) return false;
    }
    return true;
  };
  while (moving && !finished()) {
    bool wrote = false;
    for (int i = 0; i < kStreams; ++i) {
      const size_t n = guest_->Write(pairs[i].guest, out[i].data() + sent[i],
                                     std::min<size_t>(kBytes - sent[i], 50'000));
      sent[i] += n;
      wrote = wrote || n > 0;
      got_guest[i] += guest_->Read(pairs[i].guest);
    }
    if (!finished()) moving = guest_->Pump(wrote ? 0 : kPatienceMs) || wrote;
  }
  EXPECT_TRUE(finished());
  if (!finished()) StopDevice();  // lets the threads end
  for (std::thread& t : hosts) t.join();
  for (int i = 0; i < kStreams; ++i) {
    EXPECT_TRUE(got_host[i] == out[i]) << i;
    EXPECT_TRUE(got_guest[i] == in[i]) << i;
  }
}

// --- From the host

TEST_F(StreamTest, HostConnectsToTheGuest) {
  StartBoth();
  UniqueFd fd(device_->ConnectToGuest(1234));
  ASSERT_TRUE(fd);
  ASSERT_TRUE(HostWrite(fd, "hello"));
  GuestStream* s = nullptr;
  ASSERT_TRUE(guest_->PumpUntil([&] {
    s = guest_->Find(1234, 0x8000'0000);
    return s != nullptr && s->in.size() == 5;
  }));
  EXPECT_EQ(guest_->Read(s), "hello");
  guest_->Write(s, "world", 5);
  EXPECT_EQ(HostRead(fd, 5), "world");
}

TEST_F(StreamTest, HostConnectionThatTheGuestRefusesIsClosed) {
  StartBoth();
  UniqueFd fd(device_->ConnectToGuest(1234));
  const auto packet = guest_->ReceivePacket();
  ASSERT_TRUE(packet);
  EXPECT_EQ(packet->header.op, Op::kRequest);
  guest_->SendPacket(guest_->MakeHeader(1234, packet->header.src_port, Op::kRst));
  EXPECT_TRUE(HostSeesEnd(fd));
}

TEST_F(StreamTest, HostConnectionWithoutGuestIsClosed) {
  StartDevice();
  UniqueFd fd(device_->ConnectToGuest(1234));
  EXPECT_TRUE(HostSeesEnd(fd));
}

}  // namespace
}  // namespace smolvm::vsock
