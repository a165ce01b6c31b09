#include "protocol/image/image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "protocol/image/fatbin.h"

namespace smolvm::image {
namespace {

using Bytes = std::vector<std::byte>;

template <typename T>
void Put(Bytes* bytes, size_t offset, T value) {
  if (bytes->size() < offset + sizeof(value)) bytes->resize(offset + sizeof(value));
  memcpy(bytes->data() + offset, &value, sizeof(value));
}

Bytes Entry(uint16_t kind, uint32_t arch, size_t payload) {
  Bytes entry(kEntryHeaderBytes + payload, std::byte{0x55});
  memset(entry.data(), 0, kEntryHeaderBytes);
  Put<uint16_t>(&entry, 0, kind);
  Put<uint16_t>(&entry, 2, 0x0101);
  Put<uint32_t>(&entry, 4, kEntryHeaderBytes);
  Put<uint64_t>(&entry, 8, payload);
  Put<uint32_t>(&entry, 28, arch);
  return entry;
}

Bytes Container(const std::vector<Bytes>& entries) {
  Bytes container;
  Put<uint32_t>(&container, 0, kContainerMagic);
  Put<uint16_t>(&container, 4, 1);
  Put<uint16_t>(&container, 6, kContainerHeaderBytes);
  Put<uint64_t>(&container, 8, 0);
  for (const Bytes& entry : entries) container.insert(container.end(), entry.begin(), entry.end());
  Put<uint64_t>(&container, 8, container.size() - kContainerHeaderBytes);
  return container;
}

// An ELF with one section of 40 bytes, a NOBITS one that claims more, and the table in front of the
// section.
Bytes Elf() {
  Bytes elf(64 + 3 * 64 + 40);
  memcpy(elf.data(),
         "\x7F"
         "ELF\x02\x01\x01",
         7);
  Put<uint64_t>(&elf, 0x28, 64);
  Put<uint16_t>(&elf, 0x3A, 64);
  Put<uint16_t>(&elf, 0x3C, 3);
  Put<uint32_t>(&elf, 64 + 64 + 4, 1);
  Put<uint64_t>(&elf, 64 + 64 + 0x18, 64 + 3 * 64);
  Put<uint64_t>(&elf, 64 + 64 + 0x20, 40);
  Put<uint32_t>(&elf, 64 + 128 + 4, 8);
  Put<uint64_t>(&elf, 64 + 128 + 0x20, 1 << 30);
  return elf;
}

Bytes Text(const std::string& text) {
  const auto* p = reinterpret_cast<const std::byte*>(text.c_str());
  return {p, p + text.size() + 1};
}

struct Wrapper {
  uint32_t magic = kWrapperMagic;
  uint32_t version = 1;
  const void* data = nullptr;
  const void* prelinked = nullptr;
};

// A heap block of exactly these bytes, so that ASan sees a read behind them.
Image MeasureExactly(const Bytes& bytes, size_t size) {
  const auto block = std::make_unique<std::byte[]>(size);
  memcpy(block.get(), bytes.data(), size);
  return MeasureImage(block.get(), size);
}

void ExpectMeasured(const Bytes& bytes, Kind kind) {
  Bytes longer = bytes;
  longer.resize(bytes.size() + 100, std::byte{0x7F});
  for (const size_t limit : {longer.size(), bytes.size(), kUnknownLimit}) {
    const Image image = MeasureImage(longer.data(), limit);
    EXPECT_EQ(image.kind, kind);
    EXPECT_EQ(image.bytes, bytes.size());
  }
  for (size_t size = 0; size < bytes.size(); ++size) {
    const Image image = MeasureExactly(bytes, size);
    EXPECT_EQ(image.kind, Kind::kInvalid) << "truncated to " << size;
    EXPECT_EQ(image.bytes, 0u);
  }
}

TEST(MeasureImage, FindsTheLengthOfEachKindAndRefusesEachTruncation) {
  ExpectMeasured(Text("\n // x\n.version 9.0\n.target sm_90\n"), Kind::kPtx);
  ExpectMeasured(Container({Entry(kEntryElf, 75, 24), Entry(kEntryPtx, 75, 8)}), Kind::kContainer);
  ExpectMeasured(Container({}), Kind::kContainer);
  ExpectMeasured(Elf(), Kind::kElf);
}

TEST(MeasureImage, RefusesWhatIsNoImage) {
  EXPECT_EQ(MeasureImage(nullptr, 100).kind, Kind::kInvalid);
  EXPECT_EQ(MeasureImage("", kUnknownLimit).kind, Kind::kInvalid);
  EXPECT_EQ(MeasureImage("   ", kUnknownLimit).kind, Kind::kInvalid);
  EXPECT_EQ(MeasureImage("garbage", kUnknownLimit).kind, Kind::kInvalid);
  EXPECT_EQ(MeasureImage("\x7F"
                         "EL",
                         kUnknownLimit)
                .kind,
            Kind::kInvalid);
}

TEST(MeasureImage, RefusesLengthsThatOverflow) {
  Bytes container = Container({});
  for (const uint64_t rest : {UINT64_MAX, UINT64_MAX - 15, uint64_t{1} << 63, uint64_t{1} << 37}) {
    Put<uint64_t>(&container, 8, rest);
    EXPECT_EQ(MeasureImage(container.data(), kUnknownLimit).kind, Kind::kInvalid);
    EXPECT_EQ(MeasureImage(container.data(), container.size()).kind, Kind::kInvalid);
  }
  for (const size_t field : {0x18, 0x20}) {
    for (const uint64_t value : {UINT64_MAX, UINT64_MAX - 39, uint64_t{1} << 37}) {
      Bytes elf = Elf();
      Put<uint64_t>(&elf, 128 + field, value);
      EXPECT_EQ(MeasureImage(elf.data(), kUnknownLimit).kind, Kind::kInvalid);
      EXPECT_EQ(MeasureImage(elf.data(), elf.size()).kind, Kind::kInvalid);
    }
  }
}

TEST(MeasureImage, ReadsTheExtendedSectionCount) {
  Bytes elf = Elf();
  Put<uint16_t>(&elf, 0x3C, 0);
  Put<uint64_t>(&elf, 64 + 0x20, 3);
  EXPECT_EQ(MeasureImage(elf.data(), elf.size()).bytes, elf.size());
  Put<uint64_t>(&elf, 64 + 0x20, UINT64_MAX / 64);
  EXPECT_EQ(MeasureImage(elf.data(), elf.size()).kind, Kind::kInvalid);
}

TEST(FatbinReader, WalksEntries) {
  const Bytes container = Container({Entry(kEntryElf, 90, 24), Entry(kEntryPtx, 75, 8)});
  FatbinReader reader(container);
  FatbinEntry entry;
  ASSERT_TRUE(reader.Next(&entry));
  EXPECT_EQ(entry.kind, kEntryElf);
  EXPECT_EQ(entry.arch, 90u);
  EXPECT_EQ(entry.payload.size(), 24u);
  ASSERT_TRUE(reader.Next(&entry));
  EXPECT_EQ(entry.kind, kEntryPtx);
  EXPECT_FALSE(reader.Next(&entry));
  EXPECT_FALSE(reader.damaged());
}

TEST(FatbinReader, StopsAtAnEntryThatLeavesTheContainer) {
  const Bytes whole = Container({Entry(kEntryPtx, 75, 8)});
  struct {
    size_t offset;
    uint64_t value;
    size_t size;
  } const kDamage[] = {{4, 63, 4}, {4, 0, 4},          {4, 0xFFFFFFFF, 4},
                       {8, 9, 8},  {8, UINT64_MAX, 8}, {8, UINT64_MAX - kEntryHeaderBytes, 8},
                       {16, 9, 4}};
  for (const auto& damage : kDamage) {
    Bytes container = whole;
    memcpy(container.data() + kContainerHeaderBytes + damage.offset, &damage.value, damage.size);
    EXPECT_FALSE(IsWholeContainer(container)) << "at " << damage.offset << ": " << damage.value;
  }
  EXPECT_TRUE(IsWholeContainer(whole));
}

TEST(Flatten, CarriesEachKindAcross) {
  for (const Bytes& bytes : {Text(".version 9.0"), Container({Entry(kEntryPtx, 75, 8)}), Elf()}) {
    const Bytes flat = Flatten(bytes.data());
    EXPECT_EQ(flat, bytes);
    const auto image = FlatImage::Read(flat);
    ASSERT_TRUE(image);
    EXPECT_EQ(image->image(), flat.data());
  }
}

TEST(Flatten, MakesABareContainerOfAVersion1Wrapper) {
  const Bytes container = Container({Entry(kEntryPtx, 75, 8)});
  const Wrapper wrapper{.data = container.data()};
  EXPECT_EQ(Flatten(&wrapper), container);
}

TEST(Flatten, CarriesAVersion2WrapperAcross) {
  const Bytes linked = Container({});
  const Bytes first =
      Container({Entry(kEntryPtx, 75, 13)});  // an odd length, so that padding is needed
  const Bytes second = Container({Entry(kEntryPtx, 90, 16)});
  const void* const prelinked[] = {first.data(), second.data(), nullptr};
  const Wrapper wrapper{.version = 2, .data = linked.data(), .prelinked = prelinked};
  const Bytes flat = Flatten(&wrapper);
  auto read = FlatImage::Read(flat);
  ASSERT_TRUE(read);
  const FlatImage image = std::move(*read);
  EXPECT_EQ(image.kind(), Kind::kWrapperV2);
  const auto parts = ReadWrapper(image.image());
  ASSERT_TRUE(parts);
  ASSERT_EQ(parts->containers.size(), 3u);
  EXPECT_TRUE(std::ranges::equal(parts->containers[0], linked));
  EXPECT_TRUE(std::ranges::equal(parts->containers[1], first));
  EXPECT_TRUE(std::ranges::equal(parts->containers[2], second));
}

TEST(ReadWrapper, RefusesPointersToOtherThings) {
  const Bytes elf = Elf();
  EXPECT_FALSE(ReadWrapper(nullptr));
  const Wrapper null;
  EXPECT_FALSE(ReadWrapper(&null));
  const Wrapper to_elf{.data = elf.data()};
  EXPECT_FALSE(ReadWrapper(&to_elf));
  const Wrapper version3{.version = 3, .data = elf.data()};
  EXPECT_FALSE(ReadWrapper(&version3));
}

TEST(FlatImage, RefusesAForeignWrapperAndLooseEnds) {
  const Wrapper wrapper{.data = "not ours to follow"};
  EXPECT_FALSE(FlatImage::Read(std::as_bytes(std::span(&wrapper, 1))));
  Bytes text = Text(".version 9.0");
  text.push_back(std::byte{0});
  EXPECT_FALSE(FlatImage::Read(text));
  Bytes container = Container({Entry(kEntryPtx, 75, 8)});
  container.push_back(std::byte{1});
  EXPECT_FALSE(FlatImage::Read(container));
  EXPECT_FALSE(FlatImage::Read({}));
}

TEST(FlatImage, RefusesEachTruncationOfTwoContainers) {
  Bytes flat = Container({Entry(kEntryPtx, 75, 8)});
  const size_t first = flat.size();
  const Bytes second = Container({Entry(kEntryPtx, 90, 8)});
  flat.insert(flat.end(), second.begin(), second.end());
  for (size_t size = 0; size < flat.size(); ++size) {
    const Bytes part(flat.begin(), flat.begin() + static_cast<ptrdiff_t>(size));
    EXPECT_EQ(FlatImage::Read(part).has_value(), size == first) << size;
  }
}

}  // namespace
}  // namespace smolvm::image
