#include "host-daemon/vsock/packet.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <numeric>
#include <string>

namespace smolvm::vsock {
namespace {

// `bytes` cut into pieces of the given sizes, each in memory of its own so that a sanitizer sees
// what runs over.
struct Pieces {
  std::vector<std::vector<uint8_t>> store;
  Chain chain;

  Pieces(const std::vector<uint8_t>& bytes, const std::vector<size_t>& sizes) {
    size_t at = 0;
    for (size_t n : sizes) {
      store.emplace_back(bytes.begin() + at, bytes.begin() + at + n);
      at += n;
    }
    for (auto& s : store) chain.readable.push_back({s.data(), s.size()});
    chain.readable_bytes = at;
  }
};

std::vector<uint8_t> Bytes(Header h, const std::string& payload) {
  std::vector<uint8_t> bytes(sizeof(h) + payload.size());
  std::memcpy(bytes.data(), &h, sizeof(h));
  std::memcpy(bytes.data() + sizeof(h), payload.data(), payload.size());
  return bytes;
}

std::string Text(const std::vector<iovec>& v) {
  std::string text;
  for (const iovec& p : v) text.append(static_cast<char*>(p.iov_base), p.iov_len);
  return text;
}

TEST(PacketTest, HeaderAndPayloadMayBeCutAnywhere) {
  Header h;
  h.src_cid = 42;
  h.dst_port = 7000;
  h.op = Op::kRw;
  h.len = 5;
  const auto bytes = Bytes(h, "hello");
  const std::vector<std::vector<size_t>> kCuts = {
      {49}, {44, 5}, {1, 43, 5}, {20, 24 + 2, 3}, {44, 1, 1, 1, 1, 1}, std::vector<size_t>(49, 1)};
  for (const auto& cuts : kCuts) {
    Pieces pieces(bytes, cuts);
    Packet packet;
    ASSERT_EQ(ParsePacket(&pieces.chain, &packet), ParseResult::kPacket);
    EXPECT_EQ(packet.header.src_cid, 42u);
    EXPECT_EQ(packet.header.dst_port, 7000u);
    EXPECT_EQ(Text(packet.payload), "hello");
  }
}

TEST(PacketTest, EveryTruncationIsNoticed) {
  Header h;
  h.len = 5;
  const auto bytes = Bytes(h, "hello");
  for (size_t n = 0; n < bytes.size(); ++n) {
    Pieces pieces(bytes, {n});
    Packet packet;
    EXPECT_EQ(ParsePacket(&pieces.chain, &packet),
              n < 44 ? ParseResult::kShort : ParseResult::kOverrun)
        << n;
  }
}

TEST(PacketTest, BytesBehindThePayloadAreNotPayload) {
  Header h;
  h.len = 2;
  Pieces pieces(Bytes(h, "hello"), {44, 1, 4});
  Packet packet;
  ASSERT_EQ(ParsePacket(&pieces.chain, &packet), ParseResult::kPacket);
  EXPECT_EQ(Text(packet.payload), "he");
}

TEST(PacketTest, LengthsThatOverflow) {
  for (uint32_t len : {6u, 0x7fff'ffffu, 0xffff'ffffu}) {
    Header h;
    h.len = len;
    Pieces pieces(Bytes(h, "hello"), {49});
    Packet packet;
    EXPECT_EQ(ParsePacket(&pieces.chain, &packet), ParseResult::kOverrun);
  }
}

TEST(PacketTest, SkipAndPutAcrossPieces) {
  std::array<char, 10> memory;
  memory.fill('.');
  std::vector<iovec> v = {{&memory[0], 3}, {&memory[3], 3}, {&memory[6], 4}};
  EXPECT_FALSE(PutBytes(&v, "0123456789x", 11));
  EXPECT_EQ(v.size(), 3u);
  EXPECT_TRUE(PutBytes(&v, "01234", 5));
  EXPECT_EQ(std::string(memory.data(), 10), "01234.....");
  Skip(&v, 1);
  EXPECT_TRUE(PutBytes(&v, "6789", 4));
  EXPECT_EQ(std::string(memory.data(), 10), "01234.6789");
  EXPECT_TRUE(v.empty());
  Skip(&v, 0);
}

}  // namespace
}  // namespace smolvm::vsock
