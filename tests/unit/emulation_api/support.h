// What the tests of the emulated driver API share. They call it as any program does, through its
// exported names.
#pragma once

#include <cuda.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace smolvm::emulation {

#define ASSERT_CUDA(call) ASSERT_EQ(call, CUDA_SUCCESS)
#define EXPECT_CUDA(call) EXPECT_EQ(call, CUDA_SUCCESS)

// An address that no handle and no allocation has.
template <typename Handle>
Handle Garbage() {
  return reinterpret_cast<Handle>(~uintptr_t{0});
}

// An image of fake_program.cc.
inline constexpr char kImage[] =
    "//fake\n"
    "kernel store 8 4\n"
    "kernel increment 8\n"
    "kernel sleep 4\n"
    "kernel echo 8 1 2 4 8\n"
    "kernel shape 8\n"
    "kernel empty\n"
    "kernel shared\n"
    "kernel bounded\n"
    "kernel required\n"
    "kernel untranslatable\n"
    "kernel fault700\n"
    "kernel fault719\n"
    "variable counter 4\n"
    "variable table 4096\n";

// A context of its own, made current; everything in it ends with the test.
class EmulationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_CUDA(cuInit(0));
    ASSERT_CUDA(cuDeviceGet(&device_, 0));
    ASSERT_CUDA(cuCtxCreate(&context_, nullptr, 0, device_));
  }
  void TearDown() override {
    EXPECT_CUDA(cuCtxDestroy(context_));
    CUcontext left = nullptr;
    while (cuCtxGetCurrent(&left) == CUDA_SUCCESS && left != nullptr) cuCtxPopCurrent(&left);
  }

  CUdeviceptr Alloc(size_t bytes) {
    CUdeviceptr address = 0;
    EXPECT_CUDA(cuMemAlloc(&address, bytes));
    return address;
  }
  uint32_t Word(CUdeviceptr address) {
    uint32_t value = 0;
    EXPECT_CUDA(cuMemcpyDtoH(&value, address, sizeof(value)));
    return value;
  }
  CUmodule Load() {
    CUmodule module = nullptr;
    EXPECT_CUDA(cuModuleLoadData(&module, kImage));
    return module;
  }
  CUfunction Function(const char* name) {
    if (module_ == nullptr) module_ = Load();
    CUfunction function = nullptr;
    EXPECT_CUDA(cuModuleGetFunction(&function, module_, name));
    return function;
  }
  CUresult Launch(const char* name, std::vector<void*> params, CUstream stream = nullptr) {
    return cuLaunchKernel(Function(name), 1, 1, 1, 1, 1, 1, 0, stream, params.data(), nullptr);
  }
  CUstream NewStream(unsigned flags = CU_STREAM_DEFAULT) {
    CUstream stream = nullptr;
    EXPECT_CUDA(cuStreamCreate(&stream, flags));
    return stream;
  }

  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
};

// Holds a stream up until Open, by a host function; makes "unfinished work" certain without timing.
class Gate {
 public:
  explicit Gate(CUstream stream) { EXPECT_CUDA(cuLaunchHostFunc(stream, Hold, new State(open_))); }
  ~Gate() { Open(); }
  void Open() {
    *open_ = true;
    open_->notify_all();
  }

 private:
  using State = std::shared_ptr<std::atomic<bool>>;  // the host function may outlive the gate
  static void Hold(void* data) {
    const std::unique_ptr<State> open(static_cast<State*>(data));
    (*open)->wait(false);
  }
  const State open_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace smolvm::emulation
