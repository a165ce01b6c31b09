// Programs whose end, or whose worker's end, the test brings about.
#include <time.h>

#include "tests/conformance/remoting/guest/command.h"

namespace smolvm::remoting {
namespace {

double Seconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec + now.tv_nsec * 1e-9;
}

}  // namespace

COMMAND(copy_without_end) {
  Start();
  constexpr size_t kSize = 64 << 20;
  std::vector<char> bytes(kSize, 1);
  CUdeviceptr memory = 0;
  OK(cuMemAlloc(&memory, kSize));
  Say("ready");
  for (;;) OK(cuMemcpyHtoD(memory, bytes.data(), kSize));
}

// A session that works until its input ends.
COMMAND(steady) {
  Start();
  RoundTrip(100'000, 0);
  Say("ready");
  AwaitInputEnd();
  for (unsigned i = 0; i < 20; ++i) RoundTrip(100'000, i);
}

// The worker is killed while a call waits.
COMMAND(lost_while_waiting) {
  Start();
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuLaunchHostFunc(
      stream,
      [](void*) {
        for (;;) {
          const timespec long_time{1000, 0};
          nanosleep(&long_time, nullptr);
        }
      },
      nullptr));
  Say("ready");
  WANT(999, cuStreamSynchronize(stream));
  Say("lost");
  const double before = Seconds();
  CUdeviceptr memory = 0;
  size_t free = 0, total = 0;
  int version = 0;
  for (int i = 0; i < 100; ++i) {
    WANT(999, cuMemAlloc(&memory, 16));
    WANT(999, cuMemGetInfo(&free, &total));
    WANT(999, cuCtxSynchronize());
    WANT(999, cuStreamSynchronize(stream));
  }
  OK(cuDriverGetVersion(&version));
  CHECK(Seconds() - before < 2);
}

// The worker is killed while nothing is asked of it.
COMMAND(lost_while_idle) {
  Start();
  CUdeviceptr memory = 0;
  OK(cuMemAlloc(&memory, 16 << 20));
  std::vector<char> bytes(16 << 20, 1);
  Say("ready");
  AwaitInputEnd();
  // The first calls may be taken before the loss is seen; a call that waits says so.
  (void)cuMemsetD8Async(memory, 1, 16, nullptr);
  WANT(999, cuCtxSynchronize());
  WANT(999, cuMemcpyHtoD(memory, bytes.data(), bytes.size()));
  WANT(999, cuMemcpyDtoH(bytes.data(), memory, bytes.size()));
  WANT(999, cuMemsetD8Async(memory, 1, 16, nullptr));
}

// A daemon that lacks cuMemGetInfo and knows calls that do not exist yet.
COMMAND(without_mem_get_info) {
  Start();
  size_t free = 0, total = 0;
  WANT(801, cuMemGetInfo(&free, &total));
  WANT(801, cuMemGetInfo(&free, &total));
  void* found = nullptr;  // as dlsym finds it
  CUdriverProcAddressQueryResult status{};
  OK(cuGetProcAddress("cuMemGetInfo", &found, 12000, 0, &status));
  CHECK(found == reinterpret_cast<void*>(&cuMemGetInfo));
  RoundTrip(1 << 20, 1);
}

}  // namespace smolvm::remoting
