// cuLinkCreate … cuLinkDestroy as entry points; what is linked is fake_program.cc's business.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "tests/unit/emulation_api/support.h"

namespace smolvm::emulation {
namespace {

constexpr char kStore[] = "kernel store 8 4\n";
constexpr char kCounter[] = "kernel increment 8\nvariable counter 4\n";

class LinkTest : public EmulationTest {
 protected:
  CUlinkState Begin() {
    CUlinkState state = nullptr;
    EXPECT_CUDA(cuLinkCreate(0, nullptr, nullptr, &state));
    return state;
  }
  static CUresult Add(CUlinkState state, const char* text, const char* name = nullptr) {
    return cuLinkAddData(state, CU_JIT_INPUT_PTX, const_cast<char*>(text), std::strlen(text) + 1,
                         name, 0, nullptr, nullptr);
  }
};

TEST_F(LinkTest, TheImageIsLoadedAndOutlivesNothingButItsState) {
  const CUlinkState state = Begin();
  EXPECT_CUDA(Add(state, kStore));
  EXPECT_CUDA(Add(state, kCounter));
  void *image = nullptr, *again = nullptr;
  size_t bytes = 0;
  ASSERT_CUDA(cuLinkComplete(state, &image, &bytes));
  EXPECT_EQ(bytes, std::strlen(static_cast<char*>(image)) + 1);
  ASSERT_CUDA(cuLinkComplete(state, &again, nullptr));
  EXPECT_EQ(again, image);
  CUmodule module = nullptr;
  ASSERT_CUDA(cuModuleLoadData(&module, image));
  EXPECT_CUDA(cuLinkDestroy(state));
  unsigned count = 0;
  EXPECT_CUDA(cuModuleGetFunctionCount(&count, module));
  EXPECT_EQ(count, 2u);
  EXPECT_EQ(cuLinkDestroy(state), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuLinkComplete(state, &image, &bytes), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(LinkTest, FilesAreAdded) {
  const CUlinkState state = Begin();
  char path[] = "/tmp/emulation-link-XXXXXX";
  const int fd = mkstemp(path);
  ASSERT_GE(fd, 0);
  close(fd);
  const auto add = [&] {
    return cuLinkAddFile(state, CU_JIT_INPUT_PTX, path, 0, nullptr, nullptr);
  };
  EXPECT_EQ(add(), CUDA_ERROR_INVALID_IMAGE);  // empty
  std::ofstream(path) << kStore;               // no NUL at its end
  EXPECT_CUDA(add());
  std::remove(path);
  EXPECT_EQ(add(), CUDA_ERROR_FILE_NOT_FOUND);
  EXPECT_CUDA(cuLinkDestroy(state));
}

TEST_F(LinkTest, LogsAndTimeAccumulate) {
  char info[64] = "", error[64] = "";
  CUjit_option options[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                            CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
                            CU_JIT_WALL_TIME};
  void* values[] = {info, reinterpret_cast<void*>(sizeof(info)), error,
                    reinterpret_cast<void*>(sizeof(error)), nullptr};
  CUlinkState state = nullptr;
  ASSERT_CUDA(cuLinkCreate(5, options, values, &state));
  EXPECT_CUDA(Add(state, kStore, "one"));
  EXPECT_STREQ(info, "one: added\n");
  EXPECT_EQ(reinterpret_cast<size_t>(values[1]), std::strlen(info));
  EXPECT_EQ(Add(state, "bad 218\n", "two"), CUDA_ERROR_INVALID_PTX);
  EXPECT_STREQ(error, "two: bad\n");
  void* image = nullptr;
  EXPECT_CUDA(cuLinkComplete(state, &image, nullptr));
  EXPECT_STREQ(info, "one: added\nlinked\n");
  EXPECT_EQ(reinterpret_cast<size_t>(values[1]), std::strlen(info));
  float milliseconds = -1;
  std::memcpy(&milliseconds, &values[4], sizeof(milliseconds));
  EXPECT_GE(milliseconds, 0);
  EXPECT_CUDA(cuLinkDestroy(state));
}

TEST_F(LinkTest, BadArguments) {
  CUlinkState state = nullptr;
  EXPECT_EQ(cuLinkCreate(0, nullptr, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuLinkCreate(1, nullptr, nullptr, &state), CUDA_ERROR_INVALID_VALUE);
  state = Begin();
  void* image = nullptr;
  EXPECT_EQ(cuLinkComplete(state, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  char text[] = "kernel store 8 4\n";
  EXPECT_EQ(cuLinkAddData(state, CU_JIT_INPUT_PTX, nullptr, 1, nullptr, 0, nullptr, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuLinkAddData(state, CU_JIT_INPUT_PTX, text, 0, nullptr, 0, nullptr, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  // An input's options are compiler options.
  CUjit_option option = CU_JIT_WALL_TIME;
  void* value = nullptr;
  EXPECT_EQ(cuLinkAddData(state, CU_JIT_INPUT_PTX, text, sizeof(text), nullptr, 1, &option, &value),
            CUDA_ERROR_INVALID_VALUE);
  option = CU_JIT_OPTIMIZATION_LEVEL;
  EXPECT_CUDA(
      cuLinkAddData(state, CU_JIT_INPUT_PTX, text, sizeof(text), nullptr, 1, &option, &value));
  for (const CUlinkState bad : {CUlinkState{}, Garbage<CUlinkState>()}) {
    EXPECT_EQ(Add(bad, kStore), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuLinkAddFile(bad, CU_JIT_INPUT_PTX, "/", 0, nullptr, nullptr),
              CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuLinkComplete(bad, &image, nullptr), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuLinkDestroy(bad), CUDA_ERROR_INVALID_HANDLE);
  }
  EXPECT_CUDA(cuLinkDestroy(state));
}

TEST_F(LinkTest, NeedsAContextToBegin) {
  CUcontext popped = nullptr;
  ASSERT_CUDA(cuCtxPopCurrent(&popped));
  CUlinkState state = nullptr;
  EXPECT_EQ(cuLinkCreate(0, nullptr, nullptr, &state), CUDA_ERROR_INVALID_CONTEXT);
  ASSERT_CUDA(cuCtxPushCurrent(popped));
}

}  // namespace
}  // namespace smolvm::emulation
