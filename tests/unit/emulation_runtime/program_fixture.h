// Runs PTX text through Program, and hands out device memory. SMOLVM_CUDA_EMULATION_TIER decides
// how kernels run: the same tests are run for both tiers.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "host-daemon/emulation/device/settings.h"
#include "host-daemon/emulation/runtime/program.h"
#include "tests/unit/emulation_runtime/arena_fixture.h"

namespace smolvm::emulation {

inline Tier TierUnderTest() {
  const char* text = std::getenv("SMOLVM_CUDA_EMULATION_TIER");
  return ParseTier(text == nullptr ? "auto" : text).value();
}

// Packs kernel arguments at their natural alignment.
class Params {
 public:
  template <typename T>
  Params& Add(T value) {
    while (bytes_.size() % sizeof(T) != 0) bytes_.push_back(std::byte{0});
    const size_t at = bytes_.size();
    bytes_.resize(at + sizeof(T));
    memcpy(bytes_.data() + at, &value, sizeof(T));
    return *this;
  }
  std::span<const std::byte> span() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

class ProgramTest : public testing::Test {
 protected:
  template <typename T>
  T* Allocate(size_t count) {
    const uintptr_t address = TestArena().Allocate(count * sizeof(T));
    if (address == 0) abort();
    allocations_.push_back(address);
    return reinterpret_cast<T*>(address);
  }
  template <typename T>
  T* Upload(const std::vector<T>& values) {
    T* to = Allocate<T>(values.size());
    memcpy(to, values.data(), values.size() * sizeof(T));
    return to;
  }
  void TearDown() override {
    program_.reset();
    for (const uintptr_t address : allocations_) TestArena().Free(address);
  }

  // "" or the log.
  std::string Load(const std::string& ptx, int compute_capability = 90) {
    JitLog log;
    const CUresult result = Program::Load(ptx.c_str(), {compute_capability, false, TierUnderTest()},
                                          TestArena(), &log, &program_);
    if (result == CUDA_SUCCESS) return "";
    return "result " + std::to_string(result) + ": " + log.error;
  }
  size_t KernelNamed(const std::string& name) const {
    for (size_t i = 0; i < program_->kernels().size(); ++i) {
      if (program_->kernels()[i].name == name) return i;
    }
    ADD_FAILURE() << "no kernel " << name;
    abort();
  }
  CUresult Run(const std::string& kernel, LaunchConfig config, const Params& params) {
    return program_->Launch(KernelNamed(kernel), config, params.span());
  }
  CUresult Run(const std::string& kernel, uint32_t grid, uint32_t block, const Params& params) {
    return Run(kernel, LaunchConfig{{grid, 1, 1}, {block, 1, 1}}, params);
  }

  std::unique_ptr<Program> program_;
  std::vector<uintptr_t> allocations_;
};

}  // namespace smolvm::emulation
