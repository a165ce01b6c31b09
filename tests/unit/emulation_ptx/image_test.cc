// Selection of PTX from images made by hand; nvcc_test.cc has the compilers' own.
#include "protocol/image/image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lz4.h>
#include <zstd.h>

#include <cstring>

#include "host-daemon/emulation/image/load.h"
#include "host-daemon/emulation/image/select.h"
#include "protocol/image/fatbin.h"

namespace smolvm::emulation {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

template <typename T>
void Put(Bytes* bytes, size_t offset, T value) {
  if (bytes->size() < offset + sizeof(value)) bytes->resize(offset + sizeof(value));
  memcpy(bytes->data() + offset, &value, sizeof(value));
}

enum class Packing { kRaw, kZstd, kLz4 };

struct Entry {
  uint16_t kind = image::kEntryPtx;
  uint32_t arch = 90;
  uint64_t flags = 0;
  std::string text;
  Packing packing = Packing::kRaw;
  uint16_t version = 90;
};

std::string Pack(const std::string& text, Packing packing) {
  if (packing == Packing::kRaw) return text;
  std::string packed(text.size() + 1024, '\0');
  const size_t size = packing == Packing::kZstd
                          ? ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3)
                          : static_cast<size_t>(LZ4_compress_default(
                                text.data(), packed.data(), static_cast<int>(text.size()),
                                static_cast<int>(packed.size())));
  packed.resize(size);
  return packed;
}

void Append(const Entry& entry, Bytes* container) {
  const size_t at = container->size();
  const std::string packed = Pack(entry.text, entry.packing);
  const size_t padded = (packed.size() + 7) / 8 * 8;
  uint64_t flags = entry.flags | image::kEntry64Bit;
  if (entry.packing == Packing::kZstd) flags |= image::kEntryZstd;
  if (entry.packing == Packing::kLz4) flags |= image::kEntryLz4;
  Put<uint16_t>(container, at, entry.kind);
  Put<uint16_t>(container, at + 2, 0x0101);
  Put<uint32_t>(container, at + 4, image::kEntryHeaderBytes);
  Put<uint64_t>(container, at + 8, padded);
  const bool is_packed = entry.packing != Packing::kRaw;
  Put<uint32_t>(container, at + 16, is_packed ? static_cast<uint32_t>(packed.size()) : 0);
  Put<uint16_t>(container, at + 24, entry.version % 10);
  Put<uint16_t>(container, at + 26, entry.version / 10);
  Put<uint32_t>(container, at + 28, entry.arch);
  Put<uint64_t>(container, at + 40, flags);
  Put<uint64_t>(container, at + 56, is_packed ? entry.text.size() : 0);
  container->resize(at + image::kEntryHeaderBytes + padded);
  memcpy(container->data() + at + image::kEntryHeaderBytes, packed.data(), packed.size());
}

Bytes Container(const std::vector<Entry>& entries) {
  Bytes container;
  Put<uint32_t>(&container, 0, image::kContainerMagic);
  Put<uint16_t>(&container, 4, 1);
  Put<uint16_t>(&container, 6, image::kContainerHeaderBytes);
  Put<uint64_t>(&container, 8, 0);
  for (const Entry& entry : entries) Append(entry, &container);
  Put<uint64_t>(&container, 8, container.size() - image::kContainerHeaderBytes);
  return container;
}

struct Wrapper {
  uint32_t magic = image::kWrapperMagic;
  uint32_t version = 1;
  const void* data = nullptr;
  const void* prelinked = nullptr;
};

struct Selected {
  CUresult result;
  std::vector<PtxText> texts;
  std::string error;
};

Selected Select(const void* image, int compute_capability = 90) {
  Selected selected;
  selected.result = SelectPtx(image, compute_capability, &selected.texts, &selected.error);
  return selected;
}

std::string TextOf(const Bytes& image, int compute_capability = 90) {
  const Selected selected = Select(image.data(), compute_capability);
  EXPECT_EQ(selected.result, CUDA_SUCCESS) << selected.error;
  return selected.texts.size() == 1 ? selected.texts[0].text : "";
}

TEST(SelectPtx, UnpacksEachPacking) {
  const std::string text = ".version 9.0 // " + std::string(5000, 'x');
  for (const Packing packing : {Packing::kRaw, Packing::kZstd, Packing::kLz4}) {
    EXPECT_EQ(TextOf(Container({{.text = text, .packing = packing}})), text);
  }
}

TEST(SelectPtx, TakesTheNewestThatTheDeviceRuns) {
  const Bytes image = Container({{.arch = 75, .text = "75"},
                                 {.kind = image::kEntryElf, .arch = 90, .text = "elf"},
                                 {.arch = 80, .text = "80"},
                                 {.arch = 90, .flags = image::kEntryArchSpecific, .text = "90a"},
                                 {.arch = 100, .flags = image::kEntryFamily, .text = "100f"},
                                 {.arch = 120, .text = "120"}});
  EXPECT_EQ(TextOf(image, 75), "75");
  EXPECT_EQ(TextOf(image, 89), "80");
  EXPECT_EQ(TextOf(image, 90), "90a");
  EXPECT_EQ(TextOf(image, 100), "100f");
  EXPECT_EQ(TextOf(image, 103), "100f");
  EXPECT_EQ(TextOf(image, 110), "80");
  EXPECT_EQ(TextOf(image, 121), "120");
  const Bytes both = Container({{.arch = 90, .flags = image::kEntryArchSpecific, .text = "90a"},
                                {.arch = 90, .text = "90"}});
  EXPECT_EQ(TextOf(both, 90), "90");
}

TEST(SelectPtx, PassesOverPtxThatTheParserIsTooOldFor) {
  const Bytes image =
      Container({{.arch = 75, .text = "old"}, {.arch = 80, .text = "new", .version = 95}});
  EXPECT_EQ(TextOf(image), "old");
}

TEST(SelectPtx, SaysWhatToChangeWhenThereIsNoPtx) {
  const Bytes sass = Container({{.kind = image::kEntryElf, .arch = 86, .text = "elf"}});
  Selected selected = Select(sass.data());
  EXPECT_EQ(selected.result, CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_THAT(selected.error, HasSubstr("SASS sm_86"));
  EXPECT_THAT(selected.error, HasSubstr("-gencode arch=compute_90,code=compute_90"));
  const Bytes newer = Container({{.arch = 120, .text = "120"}});
  selected = Select(newer.data());
  EXPECT_EQ(selected.result, CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_THAT(selected.error, HasSubstr("PTX compute_120"));
  EXPECT_THAT(selected.error, HasSubstr("SMOLVM_CUDA_EMULATION_CC"));
  EXPECT_EQ(Select(Container({}).data()).result, CUDA_ERROR_NO_BINARY_FOR_GPU);
}

TEST(SelectPtx, RefusesGarbage) {
  EXPECT_EQ(Select("garbage").result, CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(Select(nullptr).result, CUDA_ERROR_INVALID_IMAGE);
  Bytes damaged = Container({{.text = std::string(5000, 'x'), .packing = Packing::kZstd}});
  damaged[image::kContainerHeaderBytes + image::kEntryHeaderBytes + 9] ^= std::byte{0xFF};
  damaged[image::kContainerHeaderBytes + image::kEntryHeaderBytes] ^= std::byte{0xFF};
  EXPECT_EQ(Select(damaged.data()).result, CUDA_ERROR_INVALID_IMAGE);
}

TEST(SelectPtx, BoundsWhatIsUnpacked) {
  for (const uint64_t claim :
       {uint64_t{1} << 40, uint64_t{65} << 20, uint64_t{0}, uint64_t{4999}}) {
    Bytes image = Container({{.text = std::string(5000, 'x'), .packing = Packing::kLz4}});
    Put<uint64_t>(&image, image::kContainerHeaderBytes + 56, claim);
    EXPECT_EQ(Select(image.data()).result, CUDA_ERROR_INVALID_IMAGE) << claim;
  }
  // 8 MiB of one letter in a few kilobytes.
  const std::string bomb(size_t{8} << 20, 'x');
  const Bytes image = Container({{.text = bomb, .packing = Packing::kZstd}});
  EXPECT_EQ(Select(image.data()).result, CUDA_ERROR_INVALID_IMAGE);
}

TEST(SelectPtx, FollowsWrappers) {
  const Bytes container = Container({{.text = "one"}});
  const Wrapper v1{.data = container.data()};
  EXPECT_EQ(Select(&v1).texts.at(0).text, "one");
  const Bytes empty = Container({});
  const Bytes other = Container({{.text = "two", .packing = Packing::kZstd}});
  const void* const prelinked[] = {container.data(), empty.data(), other.data(), nullptr};
  const Wrapper v2{.version = 2, .data = empty.data(), .prelinked = prelinked};
  const Selected selected = Select(&v2);
  EXPECT_EQ(selected.result, CUDA_SUCCESS);
  ASSERT_EQ(selected.texts.size(), 2u);
  EXPECT_EQ(selected.texts[1].text, "two");
  const Bytes linked = Container({{.kind = image::kEntryElf, .arch = 90, .text = "elf"}});
  const Wrapper with_sass{.version = 2, .data = linked.data(), .prelinked = prelinked};
  EXPECT_EQ(Select(&with_sass).texts.size(), 2u);
}

TEST(LoadModule, ReportsEachError) {
  const auto load = [](const char* text, int compute_capability, std::string* error) {
    JitLog log;
    ptx::Module module;
    const LoadOptions options{.compute_capability = compute_capability};
    const CUresult result = LoadModule(text, options, &log, &module);
    *error = log.error;
    return result;
  };
  std::string error;
  EXPECT_EQ(load(".version 9.0\n.target sm_80\n.entry k() { ret; }", 90, &error), CUDA_SUCCESS);
  EXPECT_EQ(load(".version 9.0\n.target sm_80\n.entry k() { ret }", 90, &error),
            CUDA_ERROR_INVALID_PTX);
  EXPECT_THAT(error, HasSubstr("line 3: unexpected token '}'"));
  EXPECT_EQ(load(".version 99.0\n.target sm_80\n", 90, &error), CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
  EXPECT_EQ(load(".version 9.0\n.target sm_120\n", 90, &error), CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_THAT(error, HasSubstr("sm_120"));
  EXPECT_EQ(load(".version 9.0\n.target sm_90a\n", 100, &error), CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(
      load(".version 9.0\n.target sm_90\n.extern .func f();\n.entry k() { call f; }", 90, &error),
      CUDA_ERROR_INVALID_PTX);
  EXPECT_THAT(error, HasSubstr("undefined reference to 'f'"));
  EXPECT_EQ(load("\x7F"
                 "EL",
                 90, &error),
            CUDA_ERROR_INVALID_IMAGE);
}

TEST(LinkModule, LinksAndReports) {
  const std::string header = ".version 9.0\n.target sm_90\n";
  const Program::Input inputs[] = {
      {"a.ptx", header + ".extern .func f();\n.visible .entry k() { call f; }"},
      {"b.ptx", header + ".visible .func f() { ret; }"}};
  JitLog log;
  ptx::Module module;
  EXPECT_EQ(LinkModule(inputs, {.verbose = true}, &log, &module), CUDA_SUCCESS) << log.error;
  EXPECT_EQ(module.functions.size(), 2u);
  EXPECT_THAT(log.info, HasSubstr("b.ptx"));
}

}  // namespace
}  // namespace smolvm::emulation
