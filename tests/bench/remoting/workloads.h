// What is timed, written once for the guest library and for the library that runs here.
#pragma once

#include <functional>

#include "tests/bench/remoting/cuda.h"

namespace smolvm::bench {

// Milliseconds: the middle of a batch of single times. A trip that the scheduler held up does not
// count.
double MedianMs(const std::function<void()>& trip);

// Sets each word of a buffer with a call of its own, asynchronously, and waits once.
class Memsets {
 public:
  static constexpr unsigned kCalls = 1000;
  // A context must be current.
  explicit Memsets(const Cuda& cuda);
  // Milliseconds, with the wait. Ends the process if a word is wrong afterwards.
  double Run();

 private:
  const Cuda& cuda_;
  CUdeviceptr words_ = 0;
  CUstream stream_ = nullptr;
  unsigned round_ = 0;
};

}  // namespace smolvm::bench
