// Programs of several modules, linked and run: Program::Link, what cuLinkComplete makes, and
// relocatable code as nvcc writes it.
#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "host-daemon/emulation/image/linker.h"
#include "tests/unit/emulation_runtime/program_fixture.h"

namespace smolvm::emulation {
namespace {

using ::testing::HasSubstr;

constexpr char kHeader[] = ".version 7.0\n.target sm_70\n.address_size 64\n";
constexpr char kCaller[] = R"(
.extern .func (.param .b32 r) next();
.extern .global .align 4 .u32 counter;
.weak .global .align 4 .u32 weak_value = 1;
.global .align 4 .u32 mine = 10;
.visible .entry run(.param .u64 out)
{
  .reg .b32 %r<8>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [out];
  { .param .b32 r; call.uni (r), next, (); ld.param.b32 %r1, [r]; }
  { .param .b32 r; call.uni (r), next, (); ld.param.b32 %r2, [r]; }
  ld.global.u32 %r3, [counter];
  ld.global.u32 %r4, [weak_value];
  ld.global.u32 %r5, [mine];
  st.global.u32 [%rd1], %r1;
  st.global.u32 [%rd1+4], %r2;
  st.global.u32 [%rd1+8], %r3;
  st.global.u32 [%rd1+12], %r4;
  st.global.u32 [%rd1+16], %r5;
  ret;
}
)";
constexpr char kCallee[] = R"(
.visible .global .align 4 .u32 counter = 40;
.visible .global .align 4 .u32 weak_value = 2;
.global .align 4 .u32 mine = 20;
.visible .func (.param .b32 r) next()
{
  .reg .b32 %r<4>;
  ld.global.u32 %r1, [counter];
  add.u32 %r1, %r1, 1;
  st.global.u32 [counter], %r1;
  ld.global.u32 %r2, [mine];
  add.u32 %r1, %r1, %r2;
  st.param.b32 [r], %r1;
  ret;
}
)";

class Linked : public ProgramTest {
 protected:
  static std::string Ptx(const char* body) { return kHeader + std::string(body); }
  CUresult LinkProgram(const std::vector<Program::Input>& inputs) {
    return Program::Link(inputs, {}, TestArena(), &log_, &program_);
  }
  void ExpectRight() {
    uint32_t* out = Allocate<uint32_t>(5);
    ASSERT_EQ(Run("run", 1, 1, Params().Add(out)), CUDA_SUCCESS);
    EXPECT_EQ(std::vector<uint32_t>(out, out + 5), (std::vector<uint32_t>{61, 62, 42, 2, 10}));
  }

  JitLog log_;
};

TEST_F(Linked, ExternsAreFoundAndPrivateNamesStayApart) {
  ASSERT_EQ(LinkProgram({{"a", Ptx(kCaller)}, {"b", Ptx(kCallee)}}), CUDA_SUCCESS) << log_.error;
  ExpectRight();
}

TEST_F(Linked, InAnyOrder) {
  ASSERT_EQ(LinkProgram({{"b", Ptx(kCallee)}, {"a", Ptx(kCaller)}}), CUDA_SUCCESS) << log_.error;
  ExpectRight();
}

TEST_F(Linked, WhatIsMissingOrDoubleIsNamed) {
  EXPECT_EQ(LinkProgram({{"a", Ptx(kCaller)}}), CUDA_ERROR_INVALID_PTX);
  EXPECT_THAT(log_.error, HasSubstr("undefined reference to"));
  EXPECT_EQ(LinkProgram({{"a", Ptx(kCaller)}, {"b", Ptx(kCallee)}, {"c", Ptx(kCallee)}}),
            CUDA_ERROR_INVALID_PTX);
  EXPECT_THAT(log_.error, HasSubstr("is defined twice, in 'c'"));
  EXPECT_EQ(program_, nullptr);
}

TEST_F(Linked, AnImageRunsAsItsSourcesDo) {
  const auto linker = Linker::Make({});
  for (const std::string& text : {Ptx(kCaller), Ptx(kCallee)})
    ASSERT_EQ(linker->Add(CU_JIT_INPUT_PTX, std::as_bytes(std::span(text)), "", &log_),
              CUDA_SUCCESS)
        << log_.error;
  std::vector<std::byte> image;
  ASSERT_EQ(linker->Complete(&log_, &image), CUDA_SUCCESS) << log_.error;
  ASSERT_EQ(Program::Load(image.data(), {}, TestArena(), &log_, &program_), CUDA_SUCCESS);
  ExpectRight();
}

// nvcc -rdc=true: an object, and a library of which it wants a member.
TEST_F(Linked, RelocatableCodeOfTheCompilersRuns) {
  namespace fs = std::filesystem;
  const std::string nvcc = SMOLVM_NVCC;
  if (!fs::exists(nvcc)) GTEST_SKIP() << "no nvcc here: relocatable code of nvcc's is NOT run";
  std::string folder = testing::TempDir() + "smolvm-linked-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const auto linker = Linker::Make({});
  const auto add = [&](const char* how, const char* source, CUjitInputType type) {
    const std::string out = folder + "/out.a";
    const std::string command = "'" + nvcc + "' -w -rdc=true -arch=compute_90 " + how + " '" +
                                SMOLVM_CUDA_PROGRAMS + "/" + source + "' -o '" + out + "'";
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
    std::ifstream file(out, std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(file), {});
    EXPECT_EQ(linker->Add(type, std::as_bytes(std::span(bytes)), source, &log_), CUDA_SUCCESS)
        << log_.error;
    fs::remove(out);
  };
  add("-c", "link_a.cu", CU_JIT_INPUT_OBJECT);
  add("-lib", "link_b.cu", CU_JIT_INPUT_LIBRARY);
  fs::remove_all(folder);
  std::vector<std::byte> image;
  ASSERT_EQ(linker->Complete(&log_, &image), CUDA_SUCCESS) << log_.error;
  ASSERT_EQ(Program::Load(image.data(), {}, TestArena(), &log_, &program_), CUDA_SUCCESS);
  int* out = Allocate<int>(32);
  ASSERT_EQ(Run(program_->kernels()[0].name, 1, 32, Params().Add(out)), CUDA_SUCCESS);
  for (int i = 0; i < 32; ++i) ASSERT_EQ(out[i], 2 * 7 + 2 + 1) << i;  // link_a.cu, link_b.cu
}

}  // namespace
}  // namespace smolvm::emulation
