// What nvcc really writes: every program in cuda/ to PTX and back, fatbins in each compression,
// relocatable code. Skipped, and said so, where nvcc is absent.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "host-daemon/emulation/image/linker.h"
#include "host-daemon/emulation/image/load.h"
#include "host-daemon/emulation/image/select.h"
#include "host-daemon/emulation/ptx/cfg.h"
#include "protocol/image/image.h"

namespace smolvm::emulation {
namespace {

constexpr const char* kNvcc = SMOLVM_NVCC;
const std::filesystem::path kPrograms = SMOLVM_CUDA_PROGRAMS;

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Nvcc : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kNvcc)) {
      GTEST_SKIP()
          << "nvcc was not found when this was configured: what compilers emit is NOT tested";
    }
    std::string pattern = (std::filesystem::temp_directory_path() / "smolvm-nvcc-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  // The output file's bytes.
  std::string Compile(const std::string& arguments) {
    const std::filesystem::path out = folder_ / "out";
    std::filesystem::remove(out);
    const std::string log = (folder_ / "log").string();
    const std::string command = "cd '" + kPrograms.string() + "' && '" + kNvcc +
                                "' -std=c++17 -w " + arguments + " -o '" + out.string() + "' >'" +
                                log + "' 2>&1";
    EXPECT_EQ(std::system(command.c_str()), 0) << command << "\n" << ReadFile(log);
    return ReadFile(out);
  }

  ptx::Module Load(const std::string& image) {
    JitLog log;
    ptx::Module module;
    EXPECT_EQ(LoadModule(image.c_str(), {.compute_capability = 90}, &log, &module), CUDA_SUCCESS)
        << log.error;
    for (const ptx::Function& function : module.functions) {
      if (function.has_body) ptx::BuildCfg(function);
    }
    return module;
  }

  std::filesystem::path folder_;
};

size_t KernelsOf(const ptx::Module& module) {
  size_t count = 0;
  for (const ptx::Function& function : module.functions) count += function.is_entry ? 1 : 0;
  return count;
}

TEST_F(Nvcc, EveryProgramParses) {
  for (const auto& entry : std::filesystem::directory_iterator(kPrograms)) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(".cu")) continue;
    const bool is_linked = name.starts_with("link_");
    const std::string rdc = is_linked ? " -rdc=true" : "";
    const std::string text = Compile("-ptx -arch=compute_90 " + name + rdc);
    ptx::Module module;
    ptx::Diagnostic diagnostic;
    EXPECT_TRUE(ptx::Parse(text, &module, &diagnostic)) << name << ": " << diagnostic.message;
    EXPECT_GT(KernelsOf(module), 0u) << name;
    // As debuggers want it: other instructions, .loc, sections.
    if (name == "control.cu" || name == "warp.cu") {
      const std::string debug = Compile("-ptx -G -arch=compute_90 " + name);
      EXPECT_TRUE(ptx::Parse(debug, &module, &diagnostic)) << name << ": " << diagnostic.message;
    }
  }
}

// instructions.ptx is a list of what the parser must take (instructions_test.cc): is it PTX?
TEST_F(Nvcc, TheAssemblerTakesTheListOfInstructions) {
  const std::filesystem::path list = kPrograms.parent_path() / "instructions.ptx";
  EXPECT_FALSE(Compile("-cubin -arch=sm_90 '" + list.string() + "'").empty());
}

TEST_F(Nvcc, EachCompressionOfFatbins) {
  for (const char* mode : {"default", "speed", "none"}) {
    const std::string image = Compile(
        "-fatbin -gencode arch=compute_75,code=sm_75 -gencode arch=compute_75,code=compute_75"
        " -gencode arch=compute_90,code=compute_90 --compress-mode=" +
        std::string(mode) + " variables.cu");
    EXPECT_EQ(image::MeasureImage(image.data(), image.size()).bytes, image.size()) << mode;
    std::vector<PtxText> texts;
    std::string error;
    ASSERT_EQ(SelectPtx(image.data(), 90, &texts, &error), CUDA_SUCCESS) << mode << error;
    EXPECT_EQ(texts[0].architecture, 90);
    ASSERT_EQ(SelectPtx(image.data(), 89, &texts, &error), CUDA_SUCCESS) << mode << error;
    EXPECT_EQ(texts[0].architecture, 75);
    EXPECT_EQ(KernelsOf(Load(image)), 5u);
  }
}

TEST_F(Nvcc, SassAloneAndCubinsAreRefused) {
  std::vector<PtxText> texts;
  std::string error;
  const std::string sass = Compile("-fatbin -gencode arch=compute_90,code=sm_90 variables.cu");
  EXPECT_EQ(SelectPtx(sass.data(), 90, &texts, &error), CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_THAT(error, ::testing::HasSubstr("SASS sm_90"));
  const std::string cubin = Compile("-cubin -arch=sm_90 variables.cu");
  EXPECT_EQ(image::MeasureImage(cubin.data(), cubin.size()).bytes, cubin.size());
  EXPECT_EQ(SelectPtx(cubin.data(), 90, &texts, &error), CUDA_ERROR_NO_BINARY_FOR_GPU);
}

TEST_F(Nvcc, RelocatableCodeLinks) {
  const std::string a = Compile("-fatbin -rdc=true -arch=compute_90 link_a.cu");
  const std::string b = Compile("-fatbin -rdc=true -arch=compute_90 link_b.cu");
  const uint8_t empty[16] = {0x50, 0xED, 0x55, 0xBA, 1, 0, 16, 0};
  const void* const prelinked[] = {a.data(), b.data(), nullptr};
  struct {
    uint32_t magic = image::kWrapperMagic;
    uint32_t version = 2;
    const void* data;
    const void* prelinked;
  } const wrapper{.data = empty, .prelinked = prelinked};
  JitLog log;
  ptx::Module module;
  ASSERT_EQ(LoadModule(&wrapper, {}, &log, &module), CUDA_SUCCESS) << log.error;
  EXPECT_EQ(KernelsOf(module), 2u);
  // Alone, the first lacks the second.
  EXPECT_EQ(LoadModule(a.data(), {}, &log, &module), CUDA_ERROR_INVALID_PTX);
  EXPECT_THAT(log.error, ::testing::HasSubstr("undefined reference"));
}

// What nvcc -c and -lib make, as cuLinkAddFile gets it.
TEST_F(Nvcc, ObjectsAndLibrariesLink) {
  const std::string object = Compile("-c -rdc=true -arch=compute_90 link_a.cu");
  const std::string library = Compile("-lib -rdc=true -arch=compute_90 link_b.cu");
  const auto linker = Linker::Make({.compute_capability = 90});
  JitLog log;
  const auto add = [&](CUjitInputType type, const std::string& bytes) {
    return linker->Add(type, std::as_bytes(std::span(bytes)), "", &log);
  };
  ASSERT_EQ(add(CU_JIT_INPUT_OBJECT, object), CUDA_SUCCESS) << log.error;
  ASSERT_EQ(add(CU_JIT_INPUT_LIBRARY, library), CUDA_SUCCESS) << log.error;
  std::vector<std::byte> image;
  ASSERT_EQ(linker->Complete(&log, &image), CUDA_SUCCESS) << log.error;
  EXPECT_EQ(KernelsOf(Load(std::string(reinterpret_cast<const char*>(image.data()), image.size()))),
            2u);
  // NVIDIA's device runtime, which programs add without using it, is SASS for most devices.
  const std::filesystem::path runtime =
      std::filesystem::path(kNvcc).parent_path() / "../lib64/libcudadevrt.a";
  if (std::filesystem::exists(runtime)) {
    EXPECT_EQ(add(CU_JIT_INPUT_LIBRARY, ReadFile(runtime)), CUDA_SUCCESS) << log.error;
    EXPECT_EQ(linker->Complete(&log, &image), CUDA_SUCCESS) << log.error;
  }
  const std::string cubin = Compile("-cubin -arch=sm_90 variables.cu");
  EXPECT_EQ(add(CU_JIT_INPUT_CUBIN, cubin), CUDA_ERROR_NO_BINARY_FOR_GPU);
}

// No truncation of a fatbin reads past its end or crashes (run under ASan as well), and none is
// taken for a whole one.
TEST_F(Nvcc, TruncatedFatbinsAreRefused) {
  const std::string image = Compile("-fatbin -arch=compute_90 link_b.cu -rdc=true");
  for (size_t size = 0; size < image.size(); ++size) {
    const auto block = std::make_unique<std::byte[]>(size);
    memcpy(block.get(), image.data(), size);
    EXPECT_EQ(image::MeasureImage(block.get(), size).kind, image::Kind::kInvalid) << size;
    EXPECT_FALSE(image::FlatImage::Read({block.get(), size})) << size;
  }
}

TEST_F(Nvcc, DamagedFatbinsDoNotCrash) {
  const std::string image = Compile("-fatbin -arch=compute_90 link_b.cu -rdc=true");
  JitLog log;
  for (size_t at = 0; at < image.size(); ++at) {
    std::string damaged = image;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x81);
    const auto flat = image::FlatImage::Read(std::as_bytes(std::span(damaged)));
    if (!flat) continue;
    ptx::Module module;
    LoadModule(flat->image(), {}, &log, &module);  // any result
  }
}

}  // namespace
}  // namespace smolvm::emulation
