#include "tests/bench/remoting/workloads.h"

#include <algorithm>
#include <vector>

#include "tests/bench/measure.h"

namespace smolvm::bench {

double MedianMs(const std::function<void()>& trip) {
  constexpr int kTrips = 1000;
  std::vector<double> times(kTrips);
  for (double& time : times) {
    const double begin = Now();
    trip();
    time = Now() - begin;
  }
  std::nth_element(times.begin(), times.begin() + kTrips / 2, times.end());
  return times[kTrips / 2];
}

Memsets::Memsets(const Cuda& cuda) : cuda_(cuda) {
  Check(cuda_.alloc(&words_, kCalls * sizeof(unsigned)), "cuMemAlloc");
  Check(cuda_.stream_create(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
}

double Memsets::Run() {
  const unsigned base = ++round_ * kCalls;
  const double begin = Now();
  for (unsigned i = 0; i < kCalls; ++i) {
    Check(cuda_.memset_async(words_ + i * sizeof(unsigned), base + i, 1, stream_),
          "cuMemsetD32Async");
  }
  Check(cuda_.stream_synchronize(stream_), "cuStreamSynchronize");
  const double taken = Now() - begin;
  std::vector<unsigned> words(kCalls);
  Check(cuda_.to_host(words.data(), words_, kCalls * sizeof(unsigned)), "cuMemcpyDtoH");
  for (unsigned i = 0; i < kCalls; ++i) {
    if (words[i] != base + i) Fail("a memset has not arrived");
  }
  return taken;
}

}  // namespace smolvm::bench
