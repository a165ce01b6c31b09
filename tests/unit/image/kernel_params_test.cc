#include "protocol/image/kernel_params.h"

#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "protocol/image/fatbin.h"
#include "protocol/image/image.h"

namespace smolvm::image {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Optional;
using Bytes = std::vector<std::byte>;

template <typename T>
void Append(Bytes* bytes, T value) {
  const auto* p = reinterpret_cast<const std::byte*>(&value);
  bytes->insert(bytes->end(), p, p + sizeof value);
}

// The attributes of a ".nv.info.KERNEL" section.
class Info {
 public:
  Info& Param(uint16_t ordinal, uint16_t offset, uint32_t size) {
    Head(4, 0x17, 12);
    Append<uint32_t>(&bytes_, 0);
    Append<uint16_t>(&bytes_, ordinal);
    Append<uint16_t>(&bytes_, offset);
    Append<uint32_t>(&bytes_, size << 18 | 0x1f000);
    return *this;
  }
  Info& ParamV2(uint16_t ordinal, uint16_t offset, uint16_t size) {
    Head(4, 0x45, 12);
    Append<uint32_t>(&bytes_, 0);
    Append<uint16_t>(&bytes_, ordinal);
    Append<uint16_t>(&bytes_, offset);
    Append<uint16_t>(&bytes_, size);
    Append<uint16_t>(&bytes_, 8);
    return *this;
  }
  Info& BlockBytes(uint16_t bytes) {
    Head(3, 0x19, bytes);
    return *this;
  }
  // Of no interest here: one attribute of each format.
  Info& Others() {
    Head(1, 0x36, 0);
    Head(2, 0x4a, 0);
    Head(3, 0x50, 0);
    Head(4, 0x1c, 8);
    Append<uint64_t>(&bytes_, ~uint64_t{0});
    return *this;
  }
  const Bytes& bytes() const { return bytes_; }

 private:
  void Head(uint8_t format, uint8_t attribute, uint16_t value) {
    Append(&bytes_, format);
    Append(&bytes_, attribute);
    Append(&bytes_, value);
  }
  Bytes bytes_;
};

// An ELF-64 file of one section for each kernel; if they overlap, all lie where the first does.
Bytes Cubin(const std::vector<std::pair<std::string, Bytes>>& kernels, bool overlap = false) {
  std::string names("\0.shstrtab\0", 11);
  std::vector<Elf64_Shdr> headers(2);
  Bytes body;
  for (const auto& [name, info] : kernels) {
    Elf64_Shdr header{};
    header.sh_type = SHT_LOPROC;
    header.sh_name = static_cast<uint32_t>(names.size());
    header.sh_offset = sizeof(Elf64_Ehdr) + body.size();
    header.sh_size = info.size();
    if (overlap && !body.empty()) {
      header.sh_offset = headers[2].sh_offset;
      header.sh_size = headers[2].sh_size;
    }
    names += ".nv.info." + name + '\0';
    headers.push_back(header);
    body.insert(body.end(), info.begin(), info.end());
  }
  headers[1].sh_type = SHT_STRTAB;
  headers[1].sh_name = 1;
  headers[1].sh_offset = sizeof(Elf64_Ehdr) + body.size();
  headers[1].sh_size = names.size();
  for (const char c : names) body.push_back(static_cast<std::byte>(c));

  Elf64_Ehdr file{};
  memcpy(file.e_ident, ELFMAG, SELFMAG);
  file.e_ident[EI_CLASS] = ELFCLASS64;
  file.e_ident[EI_DATA] = ELFDATA2LSB;
  file.e_ident[EI_VERSION] = EV_CURRENT;
  file.e_machine = EM_CUDA;
  file.e_ehsize = sizeof file;
  file.e_shentsize = sizeof(Elf64_Shdr);
  file.e_shnum = static_cast<uint16_t>(headers.size());
  file.e_shstrndx = 1;
  file.e_shoff = sizeof file + body.size();
  Bytes elf;
  Append(&elf, file);
  elf.insert(elf.end(), body.begin(), body.end());
  for (const Elf64_Shdr& header : headers) Append(&elf, header);
  return elf;
}

Bytes Entry(uint16_t kind, const Bytes& payload, uint32_t compressed = 0) {
  Bytes entry(kEntryHeaderBytes);
  const auto put = [&](size_t offset, auto value) {
    memcpy(entry.data() + offset, &value, sizeof value);
  };
  put(0, kind);
  put(2, uint16_t{0x0101});
  put(4, static_cast<uint32_t>(kEntryHeaderBytes));
  put(8, (payload.size() + 7) / 8 * 8);
  put(16, compressed);
  entry.insert(entry.end(), payload.begin(), payload.end());
  entry.resize((entry.size() + 7) / 8 * 8);
  return entry;
}

Bytes Container(const std::vector<Bytes>& entries) {
  Bytes container;
  uint64_t size = 0;
  for (const Bytes& entry : entries) size += entry.size();
  Append(&container, kContainerMagic);
  Append<uint16_t>(&container, 1);
  Append<uint16_t>(&container, kContainerHeaderBytes);
  Append(&container, size);
  for (const Bytes& entry : entries) container.insert(container.end(), entry.begin(), entry.end());
  return container;
}

Bytes Text(const std::string& text) {
  const auto* p = reinterpret_cast<const std::byte*>(text.c_str());
  return {p, p + text.size() + 1};
}

TEST(KernelInfoTest, ParametersInWhateverOrder) {
  const Info info = Info().Param(1, 8, 8).Others().BlockBytes(20).Param(2, 16, 4).Param(0, 0, 1);
  EXPECT_THAT(ReadKernelInfo(info.bytes()),
              Optional(ElementsAre(KernelParam{0, 1}, KernelParam{8, 8}, KernelParam{16, 4})));
  EXPECT_THAT(ReadKernelInfo(Info().Others().bytes()), Optional(IsEmpty()));
}

TEST(KernelInfoTest, BlocksBeyondFourKibibytes) {
  const Info info = Info().ParamV2(1, 17000, 8).ParamV2(0, 0, 17000).BlockBytes(17008);
  EXPECT_THAT(ReadKernelInfo(info.bytes()),
              Optional(ElementsAre(KernelParam{0, 17000}, KernelParam{17000, 8})));
}

TEST(KernelInfoTest, ContradictionsAreNotBelieved) {
  EXPECT_FALSE(ReadKernelInfo(Info().Param(1, 8, 8).BlockBytes(16).bytes()));  // no first
  EXPECT_FALSE(ReadKernelInfo(Info().Param(0, 0, 8).Param(0, 8, 8).BlockBytes(16).bytes()));
  EXPECT_FALSE(ReadKernelInfo(Info().Param(0, 0, 8).Param(1, 4, 8).BlockBytes(12).bytes()));
  EXPECT_FALSE(ReadKernelInfo(Info().Param(0, 0, 8).BlockBytes(4).bytes()));   // too long
  EXPECT_FALSE(ReadKernelInfo(Info().Param(0, 0, 8).BlockBytes(64).bytes()));  // one is missing
  EXPECT_FALSE(ReadKernelInfo(Info().Param(0, 0, 8).bytes()));                 // no block
  EXPECT_FALSE(ReadKernelInfo(Info().BlockBytes(64).bytes()));                 // no parameters
  EXPECT_FALSE(ReadKernelInfo(Info().ParamV2(0, 0, 40000).BlockBytes(40000).bytes()));
}

TEST(KernelInfoTest, CutOffAtEveryByte) {
  const Bytes whole = Info().Others().Param(0, 0, 8).BlockBytes(8).bytes();
  for (size_t size = 0; size < whole.size(); ++size) {
    // A block of its own, so that a sanitizer sees a read behind it.
    const Bytes cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size));
    const auto params = ReadKernelInfo(cut);
    EXPECT_TRUE(!params || params->empty()) << size;
  }
}

TEST(KernelParamsTest, OfCubinsAndContainers) {
  const Bytes f = Info().Param(0, 0, 8).BlockBytes(8).bytes();
  const Bytes g = Info().Param(0, 0, 4).Param(1, 8, 16).BlockBytes(24).bytes();
  const auto of_cubin = ReadKernelParams(Cubin({{"f", f}, {"g", g}, {"_Z1hv", {}}}));
  ASSERT_EQ(of_cubin.size(), 3u);
  EXPECT_THAT(of_cubin.at("f"), Optional(ElementsAre(KernelParam{0, 8})));
  EXPECT_THAT(of_cubin.at("g"), Optional(ElementsAre(KernelParam{0, 4}, KernelParam{8, 16})));
  EXPECT_THAT(of_cubin.at("_Z1hv"), Optional(IsEmpty()));

  // Two cubins that agree on f and not on g, PTX that knows another, and one that is packed.
  const Bytes container = Container({Entry(kEntryElf, Cubin({{"f", f}, {"g", g}})),
                                     Entry(kEntryElf, Cubin({{"g", f}, {"f", f}})),
                                     Entry(kEntryPtx, Text(".entry p(.param .u32 a)\n{ ret; }")),
                                     Entry(kEntryPtx, Text(".entry packed()\n{ ret; }"), 10)});
  ASSERT_TRUE(FlatImage::Read(container));
  const auto of_container = ReadKernelParams(container);
  EXPECT_THAT(of_container.at("f"), Optional(ElementsAre(KernelParam{0, 8})));
  EXPECT_FALSE(of_container.at("g"));
  EXPECT_THAT(of_container.at("p"), Optional(ElementsAre(KernelParam{0, 4})));
  EXPECT_FALSE(of_container.contains("packed"));
}

TEST(KernelParamsTest, WhatIsKeptOfAnImageIsBounded) {
  Info info;
  constexpr size_t kParams = 4000, kKernels = 300;
  for (uint16_t i = 0; i < kParams; ++i) info.Param(i, static_cast<uint16_t>(8 * i), 8);
  std::vector<std::pair<std::string, Bytes>> kernels(kKernels);
  for (size_t i = 0; i < kKernels; ++i) kernels[i].first = "f" + std::to_string(i);
  kernels[0].second = info.BlockBytes(8 * kParams).bytes();
  size_t params = 0;
  for (const auto& [name, of_one] : ReadKernelParams(Cubin(kernels, true))) {
    ASSERT_TRUE(of_one);
    params += of_one->size();
  }
  EXPECT_GT(params, kMaxParamsInAll / 2);
  EXPECT_LE(params, kMaxParamsInAll + kParams);
}

TEST(KernelParamsTest, DamagedImagesAreReadWithinTheirBounds) {
  const Bytes cubin = Cubin({{"f", Info().Param(0, 0, 8).BlockBytes(8).bytes()}});
  const Bytes whole = Container({Entry(kEntryElf, cubin)});
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const int change : {0x01, 0x80, 0xff}) {
      Bytes damaged = whole;
      damaged[at] ^= static_cast<std::byte>(change);
      ReadKernelParams(damaged);
    }
    ReadKernelParams(Bytes(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(at)));
  }
}

TEST(PtxKernelParamsTest, AlignmentIsNaturalOrAsItSays) {
  const auto all = ReadPtxKernelParams(R"(
.version 8.0
.target sm_70
.address_size 64
// .entry commented(.param .u32 a)
/* .entry too(.param .u32 a) */
.file 1 ".entry quoted("
.visible .entry first(
  .param .b8 a,
  .param .f64 first_param_1,  // a double
  .param .align 4 .b8 block[20],
  .param .align 16 .b8 vector[16],
  .param .u64 .ptr .global .align 64 pointer
)
.maxntid 256, 1, 1
{ ret; }
.entry _Z4nonev() { ret; }
.entry bare { ret; }
.visible .entry halves(.param .f16 a, .param .b16 b, .param .align 8 .b32 words[3]) { ret; }
)");
  ASSERT_EQ(all.size(), 4u);
  EXPECT_THAT(all.at("first"),
              Optional(ElementsAre(KernelParam{0, 1}, KernelParam{8, 8}, KernelParam{16, 20},
                                   KernelParam{48, 16}, KernelParam{64, 8})));
  EXPECT_THAT(all.at("_Z4nonev"), Optional(IsEmpty()));
  EXPECT_THAT(all.at("bare"), Optional(IsEmpty()));
  EXPECT_THAT(all.at("halves"),
              Optional(ElementsAre(KernelParam{0, 2}, KernelParam{2, 2}, KernelParam{8, 12})));
}

TEST(PtxKernelParamsTest, WhatIsNotUnderstoodIsUnknown) {
  for (const char* list :
       {".param .texref t", ".param .u32", ".param .u32 a[", ".param .u32 a[0]",
        ".param .u32 a[-1]", ".param .align 3 .b8 a[4]", ".param .b8 a[99999]",
        ".param .b8 a[4294967297]", ".param .b64 a[8000]", ".reg .u32 a",
        ".param .u32 a .param .u32 b", ".param .u32 .u32 a",
        ".param .align 32768 .b8 a[32764], .param .u32 b", ".param .u32 a,", "\"", "/*", ""}) {
    const auto all = ReadPtxKernelParams(std::string(".entry f(") + list);
    EXPECT_TRUE(!all.contains("f") || !all.at("f")) << list;
  }
  EXPECT_FALSE(
      ReadPtxKernelParams(".entry f(.param .u32 a) {} .entry f(.param .u64 a) {}").at("f"));
}

// What the compiler writes, against what C++ says of the same types.
TEST(KernelParamsTest, AgreesWithTheCompiler) {
  const char* nvcc = "/usr/local/cuda/bin/nvcc";
  if (!fs::exists(nvcc)) GTEST_SKIP() << "skipped: no nvcc here: " << nvcc << " is missing";
  std::string name = (fs::temp_directory_path() / "smolvm-params-XXXXXX").string();
  ASSERT_NE(mkdtemp(name.data()), nullptr);
  const fs::path folder = name;
  std::ofstream(folder / "k.cu") << R"(
struct Block { char c[13]; int x; };
struct __align__(16) Four { float v[4]; };
struct Large { char c[9000]; };
extern "C" __global__ void first(char a, double b, short c, Block d, Four e) {
  ((volatile double*)0)[c] = b + a + d.x + e.v[1];
}
extern "C" __global__ void large(Large l, int* p) { *p = l.c[threadIdx.x]; }
extern "C" __global__ void none() {}
)";
  const std::string in = " -o " + (folder / "image").string() + " " + (folder / "k.cu").string() +
                         " >" + (folder / "log").string() + " 2>&1";
  for (const char* kind : {" -cubin -arch=sm_90", " -ptx -arch=compute_90",
                           " -fatbin -gencode arch=compute_90,code=[sm_90,compute_90]",
                           " -fatbin --no-compress -gencode arch=compute_90,code=compute_90"}) {
    ASSERT_EQ(system((nvcc + std::string(kind) + in).c_str()), 0) << kind;
    std::ifstream file(folder / "image", std::ios::binary);
    std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
    if (bytes.size() > 0 && bytes[0] != 0x7f && bytes[0] != 0x50) bytes.push_back(0);
    const auto all = ReadKernelParams(std::as_bytes(std::span(bytes)));
    ASSERT_EQ(all.size(), 3u) << kind;
    EXPECT_THAT(all.at("first"),
                Optional(ElementsAre(KernelParam{0, 1}, KernelParam{8, 8}, KernelParam{16, 2},
                                     KernelParam{20, 20}, KernelParam{48, 16})))
        << kind;
    EXPECT_THAT(all.at("large"), Optional(ElementsAre(KernelParam{0, 9000}, KernelParam{9000, 8})))
        << kind;
    EXPECT_THAT(all.at("none"), Optional(IsEmpty())) << kind;
  }
  fs::remove_all(folder);
}

}  // namespace
}  // namespace smolvm::image
