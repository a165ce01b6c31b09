// Whole kernels, from PTX text to results.
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "tests/unit/emulation_runtime/program_fixture.h"

namespace smolvm::emulation {
namespace {

using Kernels = ProgramTest;
using ::testing::HasSubstr;

constexpr const char* kVectorAdd = R"(
.version 6.4
.target sm_50
.address_size 64
.visible .entry vector_add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n) {
  .reg .pred %p<2>;
  .reg .f32 %f<4>;
  .reg .b32 %r<6>;
  .reg .b64 %rd<11>;
  ld.param.u64 %rd1, [a];
  ld.param.u64 %rd2, [b];
  ld.param.u64 %rd3, [c];
  ld.param.u32 %r2, [n];
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.s32 %r1, %r3, %r4, %r5;
  setp.ge.u32 %p1, %r1, %r2;
  @%p1 bra DONE;
  cvta.to.global.u64 %rd4, %rd1;
  mul.wide.u32 %rd5, %r1, 4;
  add.s64 %rd6, %rd4, %rd5;
  cvta.to.global.u64 %rd7, %rd2;
  add.s64 %rd8, %rd7, %rd5;
  ld.global.f32 %f1, [%rd6];
  ld.global.f32 %f2, [%rd8];
  add.f32 %f3, %f1, %f2;
  cvta.to.global.u64 %rd9, %rd3;
  add.s64 %rd10, %rd9, %rd5;
  st.global.f32 [%rd10], %f3;
DONE:
  ret;
}
)";

TEST_F(Kernels, VectorAdd) {
  ASSERT_EQ(Load(kVectorAdd), "");
  constexpr uint32_t kCount = 100'003;
  std::vector<float> a(kCount), b(kCount);
  for (uint32_t i = 0; i < kCount; ++i) {
    a[i] = static_cast<float>(i) * 0.5f;
    b[i] = 1.0f / static_cast<float>(i + 1);
  }
  float* c = Allocate<float>(kCount);
  ASSERT_EQ(Run("vector_add", (kCount + 255) / 256, 256,
                Params().Add(Upload(a)).Add(Upload(b)).Add(c).Add(kCount)),
            CUDA_SUCCESS);
  for (uint32_t i = 0; i < kCount; ++i) ASSERT_EQ(c[i], a[i] + b[i]) << i;
}

// A NaN that a program writes out keeps its bits, one that arithmetic makes is canonical.
TEST_F(Kernels, LiteralNansKeepTheirBits) {
  ASSERT_EQ(Load(R"(
.version 6.4
.target sm_50
.address_size 64
.visible .entry select(.param .u64 out, .param .f32 zero) {
  .reg .pred %p<3>;
  .reg .f32 %f<5>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [out];
  ld.param.f32 %f1, [zero];
  div.rn.f32 %f2, %f1, %f1;
  testp.notanumber.f32 %p1, %f2;
  selp.f32 %f3, 0f7fc00000, %f2, %p1;
  not.pred %p2, %p1;
  selp.f32 %f4, 0f7fc00000, %f2, %p2;
  st.global.f32 [%rd1], %f3;
  st.global.f32 [%rd1+4], %f4;
  ret;
}
)"),
            "");
  auto* out = Allocate<uint32_t>(2);
  ASSERT_EQ(Run("select", 1, 1, Params().Add(out).Add(0.0f)), CUDA_SUCCESS);
  EXPECT_EQ(out[0], 0x7fc00000u);
  EXPECT_EQ(out[1], 0x7fffffffu);
}

TEST_F(Kernels, MoreMemoryThanADeviceHasIsRefusedWhenLoaded) {
  const auto with = [](const std::string& global, const std::string& local) {
    return ".version 6.4\n.target sm_50\n.address_size 64\n" + global +
           "\n.visible .entry k() {\n  " + local +
           "\n  .reg .b64 %rd<2>;\n  mov.u64 %rd1, x;\n  ret;\n}\n";
  };
  EXPECT_EQ(Load(with(".shared .b8 x[49152];", "")), "");
  EXPECT_THAT(Load(with(".shared .b8 x[49153];", "")), HasSubstr("too much shared data"));
  EXPECT_THAT(Load(with(".shared .b8 x[1099511627776];", "")), HasSubstr("too much shared data"));
  EXPECT_THAT(Load(with(".const .b8 x[65537];", "")), HasSubstr("too much constant data"));
  EXPECT_THAT(Load(with("", ".local .b8 x[600000];")), HasSubstr("too much local data"));
}

TEST_F(Kernels, KernelInfo) {
  ASSERT_EQ(Load(kVectorAdd), "");
  ASSERT_EQ(program_->kernels().size(), 1u);
  const KernelInfo& info = program_->kernels()[0];
  EXPECT_EQ(info.name, "vector_add");
  ASSERT_EQ(info.params.size(), 4u);
  EXPECT_EQ(info.params[3].offset, 24u);
  EXPECT_EQ(info.params[3].size, 4u);
  EXPECT_EQ(info.param_bytes, 28u);
  EXPECT_EQ(info.ptx_version, 50);
  EXPECT_EQ(info.binary_version, 90);
}

TEST_F(Kernels, BadPointersAreIllegalAddresses) {
  ASSERT_EQ(Load(kVectorAdd), "");
  float* good = Allocate<float>(64);
  const auto run = [&](uint64_t a) {
    return Run("vector_add", 1, 64, Params().Add(a).Add(good).Add(good).Add(uint32_t{64}));
  };
  EXPECT_EQ(run(0), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(run(reinterpret_cast<uint64_t>(&good)),
            CUDA_ERROR_ILLEGAL_ADDRESS);  // the host's own memory
  EXPECT_EQ(run(~uint64_t{3}), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(run(kArenaBase + TestArena().reserved_bytes()), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(run(kArenaBase + TestArena().device_bytes() - 4096), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(run(reinterpret_cast<uint64_t>(good) + 2), CUDA_ERROR_MISALIGNED_ADDRESS);
  EXPECT_EQ(run(reinterpret_cast<uint64_t>(good)), CUDA_SUCCESS);
}

// Behind device memory lie the runtime's own windows: of other blocks, other kernels, and of this
// kernel's parameters.
TEST_F(Kernels, StoresBehindDeviceMemoryAreIllegalAddresses) {
  ASSERT_EQ(Load(R"(
.version 6.4
.target sm_50
.address_size 64
.visible .entry global(.param .u64 to) {
  .reg .b64 %rd<2>;
  .reg .b32 %r<2>;
  ld.param.u64 %rd1, [to];
  mov.u32 %r1, 7;
  st.global.u32 [%rd1], %r1;
  ret;
}
.visible .entry generic(.param .u64 to) {
  .reg .b64 %rd<2>;
  .reg .b32 %r<2>;
  ld.param.u64 %rd1, [to];
  mov.u32 %r1, 7;
  st.u32 [%rd1], %r1;
  ret;
}
.visible .entry own_shared(.param .u64 to, .param .u64 offset) {
  .shared .align 4 .b32 word;
  .reg .b64 %rd<5>;
  .reg .b32 %r<3>;
  ld.param.u64 %rd1, [to];
  ld.param.u64 %rd4, [offset];
  mov.u64 %rd2, word;
  cvta.shared.u64 %rd3, %rd2;
  add.u64 %rd3, %rd3, %rd4;
  mov.u32 %r1, 7;
  st.u32 [%rd3], %r1;
  ld.u32 %r2, [%rd3];
  st.global.u32 [%rd1], %r2;
  ret;
}
)"),
            "");
  const uint64_t scratch = TestArena().scratch_base();
  for (const uint64_t offset : {0, 64, 4096 * 4, 4096 * 5}) {
    EXPECT_EQ(Run("global", 1, 1, Params().Add(scratch + offset)), CUDA_ERROR_ILLEGAL_ADDRESS)
        << offset;
  }
  // At 64 is the grid's own workspace, where cooperative groups synchronise by generic addresses.
  for (const uint64_t offset : {0, 32, 128, 4096 * 4, 4096 * 5}) {
    EXPECT_EQ(Run("generic", 1, 1, Params().Add(scratch + offset)), CUDA_ERROR_ILLEGAL_ADDRESS)
        << offset;
  }
  uint32_t* out = Allocate<uint32_t>(1);
  EXPECT_EQ(Run("global", 1, 1, Params().Add(out)), CUDA_SUCCESS);
  EXPECT_EQ(Run("generic", 1, 1, Params().Add(out)), CUDA_SUCCESS);
  *out = 0;
  EXPECT_EQ(Run("own_shared", 1, 1, Params().Add(out).Add(uint64_t{0})), CUDA_SUCCESS);
  EXPECT_EQ(*out, 7u);
  EXPECT_EQ(Run("own_shared", 1, 1, Params().Add(out).Add(uint64_t{2})),
            CUDA_ERROR_MISALIGNED_ADDRESS);
  EXPECT_EQ(Run("own_shared", 1, 1, Params().Add(out).Add(uint64_t{1} << 16)),
            CUDA_ERROR_ILLEGAL_ADDRESS);
}

// Loops in a page of code that is followed by a page which is not there can run a hundred times
// slower (codegen/load.cc), so the loader leaves no page of code untouched.
TEST_F(Kernels, PagesOfCodeAreResident) {
  ASSERT_EQ(Load(kVectorAdd), "");
  ASSERT_EQ(program_->Compile(KernelNamed("vector_add")), CUDA_SUCCESS);
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  std::ifstream maps("/proc/self/maps");
  size_t pages = 0;
  for (std::string line; std::getline(maps, line);) {
    std::istringstream fields(line);
    std::string range, rights, offset, device, inode, name;
    fields >> range >> rights >> offset >> device >> inode >> name;
    if (rights != "r-xp" || inode != "0" || !name.empty()) continue;
    const size_t dash = range.find('-');
    const uintptr_t end = std::stoull(range.substr(dash + 1), nullptr, 16);
    for (uintptr_t at = std::stoull(range, nullptr, 16); at < end; at += page, ++pages) {
      unsigned char resident = 0;
      ASSERT_EQ(mincore(reinterpret_cast<void*>(at), page, &resident), 0);
      EXPECT_EQ(resident & 1, 1) << line << " at " << std::hex << at;
    }
  }
  EXPECT_GE(pages, 3u);  // the code, and two that the processor may look ahead to
}

// Waits in the kernel's own code (threads are coroutines) and in a function that it calls (threads
// are fibres) must come to the same: partial sums by barriers, with a reduction at a barrier,
// shuffles in between, and threads that leave early.
std::string WaitingKernel(bool in_function) {
  const std::string wait = in_function ? "call.uni wait_here, ();" : "bar.sync 0;";
  return R"(
.version 7.0
.target sm_70
.address_size 64
.func wait_here() {
  bar.sync 0;
  ret;
}
.visible .entry sums(.param .u64 to, .param .u32 leavers) {
  .shared .align 4 .b8 words[1024];
  .reg .pred %p<4>;
  .reg .b32 %r<16>;
  .reg .b64 %rd<6>;
  ld.param.u64 %rd1, [to];
  ld.param.u32 %r1, [leavers];
  mov.u32 %r2, %tid.x;
  mov.u32 %r3, %ntid.x;
  shl.b32 %r4, %r2, 2;
  mov.u32 %r5, words;
  add.u32 %r6, %r5, %r4;
  st.shared.u32 [%r6], %r2;
  shr.u32 %r7, %r3, 1;
LOOP:
  )" + wait +
         R"(
  setp.ge.u32 %p1, %r2, %r7;
  @%p1 bra NEXT;
  shl.b32 %r8, %r7, 2;
  add.u32 %r9, %r6, %r8;
  ld.shared.u32 %r10, [%r9];
  ld.shared.u32 %r11, [%r6];
  add.u32 %r11, %r11, %r10;
  st.shared.u32 [%r6], %r11;
NEXT:
  shr.u32 %r7, %r7, 1;
  setp.ne.u32 %p2, %r7, 0;
  @%p2 bra LOOP;
  )" + wait +
         R"(
  setp.lt.u32 %p3, %r2, %r1;
  @%p3 bra END;
  setp.ne.u32 %p1, %r2, 0xffff;
  bar.red.popc.u32 %r12, 0, %p1;
  ld.shared.u32 %r13, [words];
  shfl.sync.idx.b32 %r14, %r2, 31, 31, -1;
  )" + wait +
         R"(
  mad.lo.u32 %r13, %r13, 1000, %r12;
  add.u32 %r13, %r13, %r14;
  cvta.to.global.u64 %rd2, %rd1;
  mul.wide.u32 %rd3, %r2, 4;
  add.u64 %rd4, %rd2, %rd3;
  st.global.u32 [%rd4], %r13;
END:
  ret;
}
)";
}

TEST_F(Kernels, ThreadsWaitAsCoroutinesAndOnFibres) {
  constexpr uint32_t kThreads = 256;
  for (const bool in_function : {false, true}) {
    ASSERT_EQ(Load(WaitingKernel(in_function)), "");
    // None, a whole warp, and a warp and a half leave before the last barriers.
    for (const uint32_t leavers : {0u, 32u, 48u}) {
      uint32_t* out = Allocate<uint32_t>(kThreads);
      memset(out, 0, kThreads * sizeof *out);
      ASSERT_EQ(Run("sums", 3, kThreads, Params().Add(out).Add(leavers)), CUDA_SUCCESS);
      constexpr uint32_t kSum = kThreads * (kThreads - 1) / 2;
      for (uint32_t i = 0; i < kThreads; ++i) {
        const uint32_t last_lane = i / 32 * 32 + 31;
        const uint32_t expected = i < leavers ? 0 : kSum * 1000 + (kThreads - leavers) + last_lane;
        ASSERT_EQ(out[i], expected) << i << " " << leavers << " " << in_function;
      }
    }
  }
}

// Threads that go from barrier to barrier for ever give the watchdog nothing to look at but their
// code.
TEST_F(Kernels, EndlessBarriersTimeOut) {
  ASSERT_EQ(Load(R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry endless() {
LOOP:
  bar.sync 0;
  bra LOOP;
}
)"),
            "");
  for (const uint32_t threads : {1u, 64u}) {
    LaunchConfig config{{2, 1, 1}, {threads, 1, 1}};
    config.timeout_ms = 20;
    EXPECT_EQ(Run("endless", config, Params()), CUDA_ERROR_LAUNCH_TIMEOUT) << threads;
  }
}

}  // namespace
}  // namespace smolvm::emulation
