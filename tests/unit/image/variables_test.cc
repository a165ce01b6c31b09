#include "protocol/image/variables.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "protocol/image/fatbin.h"
#include "protocol/image/image.h"

namespace smolvm::image {
namespace {

constexpr char kHead[] = ".version 8.0\n.target sm_70\n.address_size 64\n";

// With room for each variable's alignment; it may be more, never less.
void ExpectBytes(const std::string& declarations, uint64_t bytes, uint64_t variables = 1) {
  const auto counted = PtxVariableBytes(kHead + declarations);
  ASSERT_TRUE(counted) << declarations;
  EXPECT_GE(*counted, bytes) << declarations;
  EXPECT_LE(*counted, bytes + 64 * variables) << declarations;
}

TEST(PtxVariables, AreCountedByTheirTypes) {
  ExpectBytes("", 0, 0);
  ExpectBytes(".global .u32 one;", 4);
  ExpectBytes(".visible .global .align 16 .b8 bytes[1000];", 1000);
  ExpectBytes(".const .f64 table[4][5] = {{1.0, 2.0}, {3.0}};", 160);
  ExpectBytes(".global .v4 .f32 vectors[10];", 160);
  ExpectBytes(".global .attribute(.managed) .align 8 .b64 shared[0x10];", 128);
  ExpectBytes(".global .u16 a[100], b[50], c;", 302, 3);
  ExpectBytes(".global .b8 text[] = {72, 105, 0};", 3);
  ExpectBytes(".weak .global .b128 wide[2];", 32);
  ExpectBytes(".global .texref picture;", 64);
  ExpectBytes(".global .u64 pointers[2] = {a, generic(b)+4};", 16);
  ExpectBytes("// .global .b8 no[4096];\n/* .global .b8 no[4096]; */ .global .u8 yes;", 1);
}

TEST(PtxVariables, OfOthersAndOfFunctionsDoNotCount) {
  ExpectBytes(".extern .global .b8 elsewhere[1048576];", 0, 0);
  ExpectBytes(
      ".visible .entry k(.param .u64 .ptr .global .align 16 p) {\n  .shared .b8 s[4096];\n"
      "  .reg .u64 %d<2>;\n  ld.global.u64 %d0, [p];\n  st.global.u64 [%d1], %d0;\n  ret;\n}\n",
      0, 0);
}

TEST(PtxVariables, TooLargeOnesDoNotWrap) {
  for (const char* text :
       {".global .b64 huge[18446744073709551615];",
        ".global .b64 huge[4294967296][4294967296][16];",
        ".global .b8 a[1152921504606846976]; .global .b8 b[1152921504606846976];"})
    EXPECT_EQ(PtxVariableBytes(text), kMaxVariableBytes) << text;
}

// Half of it understood would be too little.
TEST(PtxVariables, WhatIsNotUnderstoodIsNotGuessed) {
  for (const char* text :
       {".global .b8 sum[4096 + 4096];", ".global .b8 product[(4096)];", ".global .b8 cut",
        ".global .strange x;", ".global", ".global .align 0 .b8 x;", ".global .b8 x[1"})
    EXPECT_FALSE(PtxVariableBytes(text)) << text;
}

std::vector<std::byte> Container(const std::vector<std::string>& texts) {
  std::vector<std::byte> bytes;
  const auto put = [&](auto value, size_t at) { memcpy(bytes.data() + at, &value, sizeof value); };
  bytes.resize(kContainerHeaderBytes);
  for (const std::string& text : texts) {
    const size_t entry = bytes.size(), padded = (text.size() + 8) / 8 * 8;
    bytes.resize(entry + kEntryHeaderBytes + padded);
    put(kEntryPtx, entry);
    put(uint16_t{0x0101}, entry + 2);
    put(uint32_t{kEntryHeaderBytes}, entry + 4);
    put(uint64_t{padded}, entry + 8);
    put(uint32_t{70}, entry + 28);
    memcpy(bytes.data() + entry + kEntryHeaderBytes, text.data(), text.size());
  }
  put(kContainerMagic, 0);
  put(uint16_t{1}, 4);
  put(uint16_t{kContainerHeaderBytes}, 6);
  put(uint64_t{bytes.size() - kContainerHeaderBytes}, 8);
  return bytes;
}

TEST(Variables, OfAFatbinAreThoseOfItsLargestEntry) {
  const auto bytes =
      Container({".global .b8 a[100];", ".global .b8 a[5000];", ".global .b8 a[7];"});
  const auto counted = VariableBytes(bytes);
  ASSERT_TRUE(counted);
  EXPECT_GE(*counted, 5000u);
  EXPECT_LE(*counted, 5064u);
  EXPECT_FALSE(VariableBytes(Container({".global .b8 a[1+1];"})));
}

}  // namespace
}  // namespace smolvm::image
