// From inputs of cuLinkAddData to an image that loads: every type of input, damaged ones, and what
// of a library is taken. nvcc_test.cc has the compilers' own objects and libraries.
#include "host-daemon/emulation/image/linker.h"

#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "host-daemon/emulation/image/linked_image.h"
#include "host-daemon/emulation/image/load.h"
#include "protocol/image/fatbin.h"
#include "protocol/image/image.h"

namespace smolvm::emulation {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Bytes = std::vector<std::byte>;

constexpr char kHeader[] = ".version 7.0\n.target sm_70\n.address_size 64\n";
constexpr char kCaller[] =
    ".extern .func (.param .b32 r) twice(.param .b32 x);\n"
    ".visible .entry caller() { .reg .b32 %r<2>; {\n"
    "  .param .b32 a; st.param.b32 [a], 1; .param .b32 r; call (r), twice, (a);\n"
    "  ld.param.b32 %r1, [r]; } ret; }\n";
constexpr char kTwice[] =
    ".visible .func (.param .b32 r) twice(.param .b32 x) { .reg .b32 %r<2>;\n"
    "  ld.param.b32 %r1, [x]; shl.b32 %r1, %r1, 1; st.param.b32 [r], %r1; ret; }\n";
constexpr char kUnused[] = ".visible .entry unused() { ret; }\n";

std::string Ptx(std::string_view body) { return kHeader + std::string(body); }

Bytes AsBytes(std::string_view text) {
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  return {bytes, bytes + text.size()};
}

template <typename T>
void Append(Bytes* bytes, const T& value) {
  const auto* raw = reinterpret_cast<const std::byte*>(&value);
  bytes->insert(bytes->end(), raw, raw + sizeof(value));
}

// A container with one entry.
Bytes Container(const std::string& payload, uint16_t kind = image::kEntryPtx, uint32_t arch = 70) {
  const uint64_t padded = (payload.size() + 7) / 8 * 8;
  Bytes bytes;
  Append(&bytes, image::kContainerMagic);
  Append(&bytes, uint16_t{1});
  Append(&bytes, uint16_t{16});
  Append(&bytes, uint64_t{image::kEntryHeaderBytes + padded});
  Append(&bytes, kind);
  Append(&bytes, uint16_t{0x0101});
  Append(&bytes, uint32_t{image::kEntryHeaderBytes});
  Append(&bytes, padded);
  Append(&bytes, uint64_t{0});  // not compressed
  Append(&bytes, uint16_t{0});
  Append(&bytes, uint16_t{7});
  Append(&bytes, arch);
  Append(&bytes, uint64_t{0});
  Append(&bytes, uint64_t{image::kEntry64Bit});
  Append(&bytes, uint64_t{0});
  Append(&bytes, uint64_t{0});
  const Bytes text = AsBytes(payload);
  bytes.insert(bytes.end(), text.begin(), text.end());
  bytes.resize(image::kContainerHeaderBytes + image::kEntryHeaderBytes + padded);
  return bytes;
}

// A host object whose only section with bytes is `name`.
Bytes Object(std::string_view name, const Bytes& content) {
  Bytes bytes(sizeof(Elf64_Ehdr));
  Elf64_Shdr sections[3]{};
  std::string names = std::string(1, '\0') + std::string(name) + '\0';
  sections[1].sh_name = 1;
  sections[1].sh_type = SHT_PROGBITS;
  sections[1].sh_offset = bytes.size();
  sections[1].sh_size = content.size();
  bytes.insert(bytes.end(), content.begin(), content.end());
  sections[2].sh_type = SHT_STRTAB;
  sections[2].sh_offset = bytes.size();
  sections[2].sh_size = names.size();
  const Bytes table = AsBytes(names);
  bytes.insert(bytes.end(), table.begin(), table.end());
  Elf64_Ehdr header{};
  memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_shoff = bytes.size();
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 3;
  header.e_shstrndx = 2;
  memcpy(bytes.data(), &header, sizeof header);
  for (const Elf64_Shdr& section : sections) Append(&bytes, section);
  return bytes;
}

Bytes Archive(const std::vector<std::pair<std::string, Bytes>>& members) {
  Bytes bytes = AsBytes("!<arch>\n");
  for (const auto& [name, content] : members) {
    std::string header(60, ' ');
    const std::string size = std::to_string(content.size());
    header.replace(0, name.size() + 1, name + "/");
    header.replace(48, size.size(), size);
    header.replace(58, 2, "`\n");
    const Bytes head = AsBytes(header);
    bytes.insert(bytes.end(), head.begin(), head.end());
    bytes.insert(bytes.end(), content.begin(), content.end());
    if (content.size() % 2 != 0) bytes.push_back(std::byte{'\n'});
  }
  return bytes;
}

class LinkerTest : public ::testing::Test {
 protected:
  CUresult Add(CUjitInputType type, const Bytes& data, std::string_view name = "") {
    // In a block of its own size, so that ASan sees a read past its end.
    const auto block = std::make_unique<std::byte[]>(data.size());
    memcpy(block.get(), data.data(), data.size());
    return linker_->Add(type, {block.get(), data.size()}, name, &log_);
  }
  CUresult AddPtx(std::string_view body, std::string_view name = "") {
    return Add(CU_JIT_INPUT_PTX, AsBytes(Ptx(body)), name);
  }
  // The kernels of what was linked, in order.
  std::vector<std::string> Link() {
    EXPECT_EQ(linker_->Complete(&log_, &image_), CUDA_SUCCESS) << log_.error;
    ptx::Module module;
    EXPECT_EQ(LoadModule(image_.data(), {}, &log_, &module), CUDA_SUCCESS) << log_.error;
    std::vector<std::string> kernels;
    for (const ptx::Function& function : module.functions) {
      if (function.is_entry) kernels.emplace_back(function.name);
    }
    return kernels;
  }

  std::unique_ptr<Linker> linker_ = Linker::Make({.compute_capability = 90});
  JitLog log_;
  Bytes image_;
};

using Names = std::vector<std::string>;

TEST_F(LinkerTest, ExternIsFoundInAnotherInput) {
  EXPECT_EQ(AddPtx(kCaller), CUDA_SUCCESS);
  EXPECT_EQ(linker_->Complete(&log_, &image_), CUDA_ERROR_INVALID_PTX);
  EXPECT_THAT(log_.error, HasSubstr("undefined reference to 'twice'"));
  EXPECT_THAT(image_, IsEmpty());
  EXPECT_EQ(AddPtx(kTwice), CUDA_SUCCESS);  // may be added after a failed attempt
  EXPECT_EQ(Link(), Names{"caller"});
}

TEST_F(LinkerTest, TheImageMeasuresItselfAndCanBeSent) {
  AddPtx(kCaller);
  AddPtx(kTwice);
  Link();
  const image::Image measured = image::MeasureImage(image_.data(), image::kUnknownLimit);
  EXPECT_EQ(measured.kind, image::Kind::kElf);
  EXPECT_EQ(measured.bytes, image_.size());
  EXPECT_EQ(image::Flatten(image_.data()), image_);
  EXPECT_TRUE(image::FlatImage::Read(image_));
}

TEST_F(LinkerTest, AnImageIsAnInputAgain) {
  AddPtx(kCaller);
  AddPtx(kTwice);
  Link();
  linker_ = Linker::Make({.compute_capability = 90});
  EXPECT_EQ(Add(CU_JIT_INPUT_CUBIN, image_), CUDA_SUCCESS);
  EXPECT_EQ(AddPtx(kUnused), CUDA_SUCCESS);
  EXPECT_EQ(Link(), (Names{"caller", "unused"}));
}

TEST_F(LinkerTest, ErrorsNameInputLineAndToken) {
  EXPECT_EQ(AddPtx(".visible .entry f() { bogus.s32; }\n", "first.ptx"), CUDA_ERROR_INVALID_PTX);
  EXPECT_THAT(log_.error, HasSubstr("first.ptx: error: line 4"));
  EXPECT_THAT(log_.error, HasSubstr("bogus"));
  EXPECT_EQ(AddPtx(kTwice, "a.ptx"), CUDA_SUCCESS);  // the bad one was not added
  EXPECT_EQ(AddPtx(kTwice, "b.ptx"), CUDA_SUCCESS);
  EXPECT_EQ(linker_->Complete(&log_, &image_), CUDA_ERROR_INVALID_PTX);
  EXPECT_THAT(log_.error, HasSubstr("'twice' is defined twice"));
  EXPECT_THAT(log_.error, HasSubstr("'a.ptx'"));
}

TEST_F(LinkerTest, NothingToLinkIsAnError) {
  EXPECT_EQ(linker_->Complete(&log_, &image_), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_THAT(log_.error, HasSubstr("no device code"));
}

TEST_F(LinkerTest, TextMayEndAtItsSizeOrAtItsNul) {
  const std::string text = Ptx(kUnused);
  EXPECT_EQ(Add(CU_JIT_INPUT_PTX, AsBytes(text)), CUDA_SUCCESS);
  linker_ = Linker::Make({});
  EXPECT_EQ(Add(CU_JIT_INPUT_PTX, AsBytes(text + '\0' + "not PTX")), CUDA_SUCCESS);
  EXPECT_EQ(Link(), Names{"unused"});
}

TEST_F(LinkerTest, FatbinsAndObjects) {
  EXPECT_EQ(Add(CU_JIT_INPUT_FATBINARY, Container(Ptx(kCaller))), CUDA_SUCCESS) << log_.error;
  EXPECT_EQ(Add(CU_JIT_INPUT_OBJECT, Object("__nv_relfatbin", Container(Ptx(kTwice)))),
            CUDA_SUCCESS)
      << log_.error;
  // Two containers in a section.
  Bytes two = Container(Ptx(kUnused));
  const Bytes other = Container(Ptx(".visible .entry other() { ret; }\n"));
  two.insert(two.end(), other.begin(), other.end());
  EXPECT_EQ(Add(CU_JIT_INPUT_OBJECT, Object(".nv_fatbin", two)), CUDA_SUCCESS) << log_.error;
  EXPECT_EQ(Add(CU_JIT_INPUT_OBJECT, Object(".text", two)), CUDA_SUCCESS);  // host code alone
  EXPECT_EQ(Link(), (Names{"caller", "unused", "other"}));
}

TEST_F(LinkerTest, OfALibraryWhatIsWanted) {
  const Bytes library = Archive({{"unused.o", Object(".nv_fatbin", Container(Ptx(kUnused)))},
                                 {"odd.o", AsBytes("odd")},
                                 {"twice.o", Object("__nv_relfatbin", Container(Ptx(kTwice)))}});
  EXPECT_EQ(Add(CU_JIT_INPUT_LIBRARY, library, "libx.a"), CUDA_SUCCESS) << log_.error;
  EXPECT_THAT(log_.info, HasSubstr("libx.a(odd.o): not a host object"));
  EXPECT_EQ(AddPtx(kCaller), CUDA_SUCCESS);
  EXPECT_EQ(Link(), Names{"caller"});
}

TEST_F(LinkerTest, CodeThatIsNoPtxIsRefusedByName) {
  EXPECT_EQ(Add(CU_JIT_INPUT_CUBIN, Object(".text", AsBytes("SASS"))),
            CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(Add(CU_JIT_INPUT_FATBINARY, Container("SASS", image::kEntryElf)),
            CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_THAT(log_.error, HasSubstr("SASS sm_70"));
  EXPECT_EQ(Add(CU_JIT_INPUT_OBJECT,
                Object(".nv_fatbin", Container(Ptx(kUnused), image::kEntryPtx, 120))),
            CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(Add(CU_JIT_INPUT_PTX, AsBytes(".version 9.0\n.target sm_120\n.address_size 64\n")),
            CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(Add(CU_JIT_INPUT_NVVM, AsBytes("BC")), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(Add(static_cast<CUjitInputType>(77), AsBytes("x")), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Add(CU_JIT_INPUT_PTX, AsBytes(".version 99.0\n.target sm_70\n")),
            CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
}

TEST_F(LinkerTest, InputsOfAnotherTypeAreInvalid) {
  const Bytes text = AsBytes(Ptx(kUnused));
  for (const CUjitInputType type :
       {CU_JIT_INPUT_CUBIN, CU_JIT_INPUT_FATBINARY, CU_JIT_INPUT_OBJECT, CU_JIT_INPUT_LIBRARY})
    EXPECT_EQ(Add(type, text), CUDA_ERROR_INVALID_IMAGE) << type;
  // A wrapper's pointers are never followed.
  Bytes wrapper(image::kWrapperBytes);
  memcpy(wrapper.data(), &image::kWrapperMagic, 4);
  wrapper[4] = std::byte{1};
  EXPECT_EQ(Add(CU_JIT_INPUT_FATBINARY, wrapper), CUDA_ERROR_INVALID_IMAGE);
}

// Truncated at every byte, and with every byte damaged: any result, but nothing outside is read
// (ASan), and of a linked image no damaged one is taken.
TEST_F(LinkerTest, DamagedInputs) {
  const struct {
    CUjitInputType type;
    Bytes whole;
  } kInputs[] = {
      {CU_JIT_INPUT_FATBINARY, Container(Ptx(kUnused))},
      {CU_JIT_INPUT_OBJECT, Object(".nv_fatbin", Container(Ptx(kUnused)))},
      {CU_JIT_INPUT_LIBRARY, Archive({{"o", Object(".nv_fatbin", Container(Ptx(kUnused)))}})},
  };
  for (const auto& input : kInputs) {
    for (size_t size = 1; size < input.whole.size(); ++size)
      Add(input.type, {input.whole.begin(), input.whole.begin() + static_cast<ptrdiff_t>(size)});
    for (size_t at = 0; at < input.whole.size(); ++at) {
      Bytes damaged = input.whole;
      damaged[at] ^= std::byte{0x81};
      Add(input.type, damaged);
    }
  }
}

TEST_F(LinkerTest, DamagedLinkedImagesAreRefused) {
  const NamedPtx source{"a", Ptx(kUnused)};
  const Bytes whole = WriteLinkedImage({&source, 1});
  std::vector<NamedPtx> sources;
  ASSERT_TRUE(ReadLinkedImage(whole, &sources));
  EXPECT_EQ(sources[0].text, source.text);
  const size_t content_end = sizeof(Elf64_Ehdr) + 8 + 8 + 16 + 1 + source.text.size() + 8;
  for (size_t at = sizeof(Elf64_Ehdr); at < content_end; ++at) {
    Bytes damaged = whole;
    damaged[at] ^= std::byte{0x81};
    EXPECT_FALSE(ReadLinkedImage(damaged, &sources)) << at;
    ptx::Module module;
    EXPECT_EQ(LoadModule(damaged.data(), {}, &log_, &module), CUDA_ERROR_INVALID_IMAGE) << at;
  }
  for (size_t size = 0; size < whole.size(); ++size) {
    const auto block = std::make_unique<std::byte[]>(size);
    memcpy(block.get(), whole.data(), size);
    EXPECT_FALSE(ReadLinkedImage({block.get(), size}, &sources)) << size;
  }
}

// Well hashed, but with numbers that lie.
TEST_F(LinkerTest, HostileNumbersInALinkedImage) {
  const NamedPtx source{"a", "b"};
  const Bytes whole = WriteLinkedImage({&source, 1});
  const size_t numbers = sizeof(Elf64_Ehdr) + 8;
  for (const size_t field : {0u, 8u, 16u}) {
    for (const uint64_t value :
         {uint64_t{0}, uint64_t{2}, uint64_t{1} << 20, uint64_t{1} << 60, UINT64_MAX}) {
      Bytes hostile = whole;
      memcpy(hostile.data() + numbers + field, &value, sizeof value);
      const size_t content = 8 + 8 + 16 + 2;
      uint64_t hash = 0xcbf29ce484222325;
      for (size_t i = 0; i < content; ++i) {
        hash = (hash ^ static_cast<uint8_t>(hostile[sizeof(Elf64_Ehdr) + i])) *
               uint64_t{0x100000001b3};
      }
      memcpy(hostile.data() + sizeof(Elf64_Ehdr) + content, &hash, sizeof hash);
      std::vector<NamedPtx> sources;
      EXPECT_FALSE(ReadLinkedImage(hostile, &sources)) << field << " " << value;
    }
  }
}

}  // namespace
}  // namespace smolvm::emulation
