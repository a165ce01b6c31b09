// Runs the programs in tests/conformance/kernels/ptx, one file a feature. Each is PTX that anybody
// can read; what it should do is written out in the test.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/unit/emulation_runtime/program_fixture.h"

namespace smolvm::emulation {

class FeatureTest : public ProgramTest {
 protected:
  void LoadFile(const std::string& name) {
    std::ifstream file(std::filesystem::path(SMOLVM_PTX_KERNELS) / name);
    ASSERT_TRUE(file) << name;
    ASSERT_EQ(Load(std::string(std::istreambuf_iterator<char>(file), {})), "") << name;
  }
  template <typename T>
  T* Zeroes(size_t count) {
    T* to = Allocate<T>(count);
    memset(to, 0, count * sizeof(T));
    return to;
  }
};

}  // namespace smolvm::emulation
