// A driver older than CUDA 12.4 cannot say how a kernel's parameters lie: the image does.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tests/loopback/host.h"

namespace smolvm::loopback {
namespace {

constexpr char kPtx[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry known(.param .u8 a, .param .u64 b, .param .align 4 .b8 c[12])\n{\n  ret;\n}\n"
    ".visible .entry unknown(.param .texref t)\n{\n  ret;\n}\n";

class OldDriver : public Loopback {
 protected:
  void SetUp() override {
    Loopback::SetUp();
    host.table().cuFuncGetParamInfo = nullptr;
    host.table().cuKernelGetParamInfo = nullptr;
    host.driver.cuModuleLoadDataEx = [](CUmodule* module, const void*, unsigned, CUjit_option*,
                                        void**) {
      *module = Fake<CUmodule>(++made);
      return CUDA_SUCCESS;
    };
    host.driver.cuModuleGetFunction = [](CUfunction* function, CUmodule, const char*) {
      *function = Fake<CUfunction>(++made);
      return CUDA_SUCCESS;
    };
    host.driver.cuLaunchKernel = [this](CUfunction, unsigned, unsigned, unsigned, unsigned,
                                        unsigned, unsigned, unsigned, CUstream, void** params,
                                        void** extra) {
      EXPECT_EQ(params, nullptr);
      const auto* block = static_cast<const char*>(extra[1]);
      seen.assign(block, block + *static_cast<size_t*>(extra[3]));
      return CUDA_SUCCESS;
    };
  }
  void TearDown() override {
    const driver::DriverTable whole = host.driver.Table();
    host.table().cuFuncGetParamInfo = whole.cuFuncGetParamInfo;
    host.table().cuKernelGetParamInfo = whole.cuKernelGetParamInfo;
  }

  CUresult Launch(CUfunction function) {
    seen.clear();
    char a = 'a';
    uint64_t b = 0x1122334455667788;
    char c[12] = "hello world";
    void* params[] = {&a, &b, c};
    const CUresult result = cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr);
    host.Settle();
    return result;
  }
  void ExpectPacked() {
    ASSERT_EQ(seen.size(), 28u);
    const uint64_t b = 0x1122334455667788;
    EXPECT_EQ(seen[0], 'a');
    EXPECT_EQ(memcmp(seen.data() + 8, &b, 8), 0);
    EXPECT_STREQ(seen.data() + 16, "hello world");
  }

  static inline uintptr_t made = 1000;
  std::vector<char> seen;
};

TEST_F(OldDriver, ModulesLayoutsAreTheImages) {
  CUmodule module = nullptr;
  CUfunction known = nullptr, unknown = nullptr, absent = nullptr;
  ASSERT_EQ(cuModuleLoadData(&module, kPtx), CUDA_SUCCESS);
  ASSERT_EQ(cuModuleGetFunction(&known, module, "known"), CUDA_SUCCESS);
  ASSERT_EQ(cuModuleGetFunction(&unknown, module, "unknown"), CUDA_SUCCESS);
  ASSERT_EQ(cuModuleGetFunction(&absent, module, "absent"), CUDA_SUCCESS);
  EXPECT_EQ(Launch(known), CUDA_SUCCESS);
  ExpectPacked();
  EXPECT_EQ(Launch(unknown), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(Launch(absent), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_TRUE(seen.empty());
  host.driver.cuModuleUnload = [](CUmodule) { return CUDA_SUCCESS; };
  EXPECT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
}

TEST_F(OldDriver, SoAreLibraries) {
  host.driver.cuLibraryLoadData = [](CUlibrary* library, const void*, CUjit_option*, void**,
                                     unsigned, CUlibraryOption*, void**, unsigned) {
    *library = Fake<CUlibrary>(++made);
    return CUDA_SUCCESS;
  };
  host.driver.cuLibraryGetKernel = [](CUkernel* kernel, CUlibrary, const char*) {
    *kernel = Fake<CUkernel>(++made);
    return CUDA_SUCCESS;
  };
  host.driver.cuKernelGetFunction = [](CUfunction* function, CUkernel) {
    *function = Fake<CUfunction>(++made);
    return CUDA_SUCCESS;
  };
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  CUfunction function = nullptr;
  ASSERT_EQ(cuLibraryLoadData(&library, kPtx, nullptr, nullptr, 0, nullptr, nullptr, 0),
            CUDA_SUCCESS);
  ASSERT_EQ(cuLibraryGetKernel(&kernel, library, "known"), CUDA_SUCCESS);
  ASSERT_EQ(cuKernelGetFunction(&function, kernel), CUDA_SUCCESS);
  EXPECT_EQ(Launch(function), CUDA_SUCCESS);
  ExpectPacked();
}

}  // namespace
}  // namespace smolvm::loopback
