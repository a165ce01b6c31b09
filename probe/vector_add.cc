#include "probe/vector_add.h"

#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace smolvm::probe {

namespace {

// PTX ISA 6.0 and sm_50: every driver since CUDA 9 takes it, for every GPU since Maxwell.
constexpr char kPtx[] = R"(.version 6.0
.target sm_50
.address_size 64

.visible .entry vector_add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)
{
  .reg .pred %outside;
  .reg .f32 %x, %y, %sum;
  .reg .b32 %block, %size, %thread, %i, %n;
  .reg .b64 %a, %b, %c, %offset;

  ld.param.u32 %n, [n];
  mov.u32 %block, %ctaid.x;
  mov.u32 %size, %ntid.x;
  mov.u32 %thread, %tid.x;
  mad.lo.u32 %i, %block, %size, %thread;
  setp.ge.u32 %outside, %i, %n;
  @%outside bra DONE;
  ld.param.u64 %a, [a];
  ld.param.u64 %b, [b];
  ld.param.u64 %c, [c];
  cvta.to.global.u64 %a, %a;
  cvta.to.global.u64 %b, %b;
  cvta.to.global.u64 %c, %c;
  mul.wide.u32 %offset, %i, 4;
  add.u64 %a, %a, %offset;
  add.u64 %b, %b, %offset;
  add.u64 %c, %c, %offset;
  ld.global.f32 %x, [%a];
  ld.global.f32 %y, [%b];
  add.rn.f32 %sum, %x, %y;
  st.global.f32 [%c], %sum;
DONE:
  ret;
}
)";

constexpr unsigned kThreads = 256;

// Elements travel in chunks, so that a guest needs little memory of its own.
constexpr std::uint32_t kChunk = 1U << 20;

// Element i, and cuda-probe.py's too: a = ±(2^23 + i mod 2^16) and b = ±2^16 * (i / 2^16 mod 2^7),
// negative in every second run of 2^23 elements. So c = ±(2^23 + i mod 2^23): exact, and no two of
// 16,777,216 are the same.
float First(std::uint32_t i) {
  const float value = 8388608.0F + static_cast<float>(i & 0xFFFFU);
  return (i >> 23 & 1U) != 0 ? -value : value;
}
float Second(std::uint32_t i) {
  const float value = static_cast<float>(i & 0x7F0000U);
  return (i >> 23 & 1U) != 0 ? -value : value;
}

// Owns a run's device memory, module and host buffers.
class Run {
 public:
  Run(const Driver& driver, std::uint32_t elements) : driver_(driver), elements_(elements) {}
  ~Run() {
    for (const DevicePointer pointer : {a_, b_, c_}) {
      if (pointer != 0) driver_.cuMemFree(pointer);
    }
    if (module_ != nullptr) driver_.cuModuleUnload(module_);
    std::free(host_);
    std::free(expected_);
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  VectorAddResult Do() {
    host_ = static_cast<float*>(std::malloc(kChunk * sizeof(float)));
    expected_ = static_cast<float*>(std::malloc(kChunk * sizeof(float)));
    if (host_ == nullptr || expected_ == nullptr) {
      result_.call = "malloc";
      return result_;
    }
    result_.match = Load() && Send() && Launch() && Verify();
    return result_;
  }

 private:
  bool Ok(Result code, const char* call) {
    if (code != 0) {
      result_.code = code;
      result_.call = call;
    }
    return code == 0;
  }

  bool Load() {
    const std::size_t bytes = static_cast<std::size_t>(elements_) * sizeof(float);
    return Ok(driver_.cuModuleLoadData(&module_, kPtx), "cuModuleLoadData") &&
           Ok(driver_.cuModuleGetFunction(&function_, module_, "vector_add"),
              "cuModuleGetFunction") &&
           Ok(driver_.cuMemAlloc(&a_, bytes), "cuMemAlloc") &&
           Ok(driver_.cuMemAlloc(&b_, bytes), "cuMemAlloc") &&
           Ok(driver_.cuMemAlloc(&c_, bytes), "cuMemAlloc");
  }

  bool Send() {
    for (std::uint32_t begin = 0; begin < elements_; begin += kChunk) {
      const std::uint32_t count = Count(begin);
      for (std::uint32_t i = 0; i < count; ++i) host_[i] = First(begin + i);
      if (!Ok(driver_.cuMemcpyHtoD(At(a_, begin), host_, count * sizeof(float)), "cuMemcpyHtoD"))
        return false;
      for (std::uint32_t i = 0; i < count; ++i) host_[i] = Second(begin + i);
      if (!Ok(driver_.cuMemcpyHtoD(At(b_, begin), host_, count * sizeof(float)), "cuMemcpyHtoD"))
        return false;
    }
    return true;
  }

  bool Launch() {
    void* parameters[] = {&a_, &b_, &c_, &elements_};
    const unsigned blocks = (elements_ - 1) / kThreads + 1;
    return Ok(driver_.cuLaunchKernel(function_, blocks, 1, 1, kThreads, 1, 1, 0, nullptr,
                                     parameters, nullptr),
              "cuLaunchKernel") &&
           Ok(driver_.cuCtxSynchronize(), "cuCtxSynchronize");
  }

  bool Verify() {
    for (std::uint32_t begin = 0; begin < elements_; begin += kChunk) {
      const std::size_t bytes = Count(begin) * sizeof(float);
      std::memset(host_, 0xA5, bytes);
      if (!Ok(driver_.cuMemcpyDtoH(host_, At(c_, begin), bytes), "cuMemcpyDtoH")) return false;
      for (std::uint32_t i = 0; i < Count(begin); ++i)
        expected_[i] = First(begin + i) + Second(begin + i);
      if (std::memcmp(host_, expected_, bytes) != 0) return false;
    }
    return true;
  }

  std::uint32_t Count(std::uint32_t begin) const {
    return elements_ - begin < kChunk ? elements_ - begin : kChunk;
  }
  static DevicePointer At(DevicePointer base, std::uint32_t element) {
    return base + static_cast<DevicePointer>(element) * sizeof(float);
  }

  const Driver& driver_;
  std::uint32_t elements_;
  VectorAddResult result_;
  Module module_ = nullptr;
  Function function_ = nullptr;
  DevicePointer a_ = 0;
  DevicePointer b_ = 0;
  DevicePointer c_ = 0;
  float* host_ = nullptr;
  float* expected_ = nullptr;
};

}  // namespace

VectorAddResult VectorAdd(const Driver& driver, std::uint32_t elements) {
  return Run(driver, elements).Do();
}

}  // namespace smolvm::probe
