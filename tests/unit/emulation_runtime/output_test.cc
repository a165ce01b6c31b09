// Device printf's formatter: specifiers of the CUDA C++ programming guide, and formats made to do
// harm.
#include "host-daemon/emulation/runtime/output.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace smolvm::emulation {
namespace {

// A packed argument buffer, as vprintf receives it.
class Packed {
 public:
  template <typename T>
  Packed& Add(T value) {
    while (bytes_.size() % sizeof(T) != 0) bytes_.push_back(0);
    const auto* begin = reinterpret_cast<const char*>(&value);
    for (size_t i = 0; i < sizeof(T); ++i) bytes_.push_back(begin[i]);
    return *this;
  }
  const std::vector<char>& bytes() const { return bytes_; }

 private:
  std::vector<char> bytes_;
};

constexpr uint64_t kFormat = 0x1000, kArguments = 0x20000, kString = 0x30000;

std::string Format(const std::string& format, const Packed& packed = {}, int* result = nullptr,
                   const std::string& string = "") {
  const auto piece = [](uint64_t base, const char* data, size_t bytes, uint64_t address, void* out,
                        size_t size) {
    if (address < base || address + size > base + bytes) return false;
    memcpy(out, data + (address - base), size);
    return true;
  };
  std::string text;
  const int count = FormatDevicePrintf(
      [&](uint64_t address, void* out, size_t size) {
        return piece(kFormat, format.c_str(), format.size() + 1, address, out, size) ||
               piece(kArguments, packed.bytes().data(), packed.bytes().size(), address, out,
                     size) ||
               piece(kString, string.c_str(), string.size() + 1, address, out, size);
      },
      kFormat, packed.bytes().empty() ? 0 : kArguments, &text);
  if (result != nullptr) *result = count;
  return text;
}

TEST(DevicePrintf, PlainAndPercent) {
  int count = -5;
  EXPECT_EQ(Format("100%% done\n", {}, &count), "100% done\n");
  EXPECT_EQ(count, 0);
}

TEST(DevicePrintf, IntegersFloatsCharacters) {
  int count = 0;
  EXPECT_EQ(
      Format(
          "%d %u %5d|%-5d|%05d %x %#X %c",
          Packed().Add(-1).Add(4294967295u).Add(42).Add(42).Add(42).Add(255).Add(255).Add(int{'z'}),
          &count),
      "-1 4294967295    42|42   |00042 ff 0XFF z");
  EXPECT_EQ(count, 8);
  EXPECT_EQ(Format("%f %.2f %g %e", Packed().Add(1.5).Add(2.345).Add(1e10).Add(0.5)),
            "1.500000 2.35 1e+10 5.000000e-01");
}

TEST(DevicePrintf, LongArgumentsAreAligned) {
  EXPECT_EQ(Format("%d %lld %d %llx",
                   Packed().Add(1).Add(int64_t{-5000000000}).Add(2).Add(uint64_t{1} << 40)),
            "1 -5000000000 2 10000000000");
  EXPECT_EQ(Format("%ld %zu", Packed().Add(int64_t{-7}).Add(uint64_t{9})), "-7 9");
}

TEST(DevicePrintf, StringsAndStars) {
  EXPECT_EQ(
      Format("[%s] [%8.3s] [%*d] [%-*d]",
             Packed().Add(kString).Add(kString).Add(6).Add(5).Add(4).Add(3), nullptr, "hello"),
      "[hello] [     hel] [     5] [3   ]");
  EXPECT_EQ(Format("%s", Packed().Add(uint64_t{0})), "(null)");
  EXPECT_EQ(Format("%s", Packed().Add(uint64_t{77})), "(bad address)");
}

TEST(DevicePrintf, HostileFormats) {
  // %n must not write anything anywhere, and no width may make us allocate gigabytes.
  EXPECT_EQ(Format("%n%n", Packed().Add(kString)), "nn");
  EXPECT_LE(Format("%999999999d", Packed().Add(1)).size(), 4096u);
  EXPECT_LE(Format("%.*f", Packed().Add(INT32_MAX).Add(1.0)).size(), 4200u);
  EXPECT_LE(Format("%*d", Packed().Add(INT32_MIN).Add(1)).size(), 4096u);
  EXPECT_EQ(Format("%"), "");
  EXPECT_EQ(Format("%-+ #0-+ #0d"), "+ #0d");
  EXPECT_EQ(Format("%d %d"), "0 0");
}

TEST(DevicePrintf, UnreadableFormat) {
  std::string text;
  EXPECT_EQ(FormatDevicePrintf([](uint64_t, void*, size_t) { return false; }, 1, 2, &text), -1);
}

}  // namespace
}  // namespace smolvm::emulation
