// Streams, and host functions, which run in this process in their stream's order.
#include <atomic>
#include <cstring>
#include <thread>

#include "tests/conformance/remoting/guest/command.h"

namespace smolvm::remoting {
namespace {

// Holds a stream up until it is opened.
class Gate {
 public:
  explicit Gate(CUstream stream) {
    OK(cuLaunchHostFunc(
        stream, [](void* gate) { static_cast<Gate*>(gate)->open_.wait(false); }, this));
  }
  void Open() {
    open_ = true;
    open_.notify_all();
  }

 private:
  std::atomic<bool> open_{false};
};

struct Seen {
  const unsigned char* pinned;
  unsigned char expected;
  std::vector<int>* order;
  std::atomic<int> refused{0};
};

void CUDA_CB Look(void* data) {
  auto* seen = static_cast<Seen*>(data);
  bool as_expected = true;
  for (int i = 0; i < 4096; ++i) as_expected = as_expected && seen->pinned[i] == seen->expected;
  seen->order->push_back(as_expected ? seen->expected : -1);
  int device = 0;
  size_t free, total;
  if (cuCtxGetDevice(&device) == CUDA_ERROR_NOT_PERMITTED) ++seen->refused;
  if (cuMemGetInfo(&free, &total) == CUDA_ERROR_NOT_PERMITTED) ++seen->refused;
  if (cuStreamSynchronize(nullptr) == CUDA_ERROR_NOT_PERMITTED) ++seen->refused;
}

}  // namespace

COMMAND(host_functions) {
  Start();
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  unsigned char* pinned = nullptr;
  CUdeviceptr memory = 0;
  OK(cuMemHostAlloc(reinterpret_cast<void**>(&pinned), 4096, 0));
  OK(cuMemAlloc(&memory, 4096));
  std::vector<int> order;
  constexpr int kRounds = 20;
  std::vector<Seen> seen(kRounds);
  for (int i = 0; i < kRounds; ++i) {
    seen[i].pinned = pinned;
    seen[i].expected = static_cast<unsigned char>(i + 1);
    seen[i].order = &order;
    OK(cuMemsetD8Async(memory, seen[i].expected, 4096, stream));
    OK(cuMemcpyDtoHAsync(pinned, memory, 4096, stream));
    if (i % 2 == 0) {
      OK(cuLaunchHostFunc(stream, Look, &seen[i]));
    } else {
      OK(cuStreamAddCallback(
          stream,
          [](CUstream, CUresult status, void* data) {
            CHECK(status == CUDA_SUCCESS);
            Look(data);
          },
          &seen[i], 0));
    }
  }
  OK(cuStreamSynchronize(stream));
  CHECK(order.size() == kRounds);
  for (int i = 0; i < kRounds; ++i) {
    CHECK(order[i] == i + 1);
    CHECK(seen[i].refused == 3);
  }
  WANT(1, cuLaunchHostFunc(stream, nullptr, nullptr));
}

// What a host function writes to pinned memory, a later copy of its stream takes along.
COMMAND(host_function_feeds_copy) {
  Start();
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  uint32_t* pinned = nullptr;
  CUdeviceptr memory = 0;
  OK(cuMemHostAlloc(reinterpret_cast<void**>(&pinned), 4096, 0));
  OK(cuMemAlloc(&memory, 4096));
  pinned[0] = 1;
  OK(cuLaunchHostFunc(
      stream, [](void* data) { static_cast<uint32_t*>(data)[0] = 2; }, pinned));
  OK(cuMemcpyHtoDAsync(memory, pinned, 4, stream));
  OK(cuStreamSynchronize(stream));
  uint32_t value = 0;
  OK(cuMemcpyDtoH(&value, memory, 4));
  WANT(2, value);
}

COMMAND(stream_order) {
  Start();
  CUstream free_stream = nullptr, blocking = nullptr;
  OK(cuStreamCreate(&free_stream, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
  CUdeviceptr memory = 0;
  OK(cuMemAlloc(&memory, 4096));
  {
    Gate gate(free_stream);
    CopyThereAndBack(memory, 4096, 6);  // on the NULL stream
    WANT(600, cuStreamQuery(free_stream));
    gate.Open();
    OK(cuStreamSynchronize(free_stream));
  }
  Gate gate(blocking);
  OK(cuMemsetD8Async(memory, 1, 4096, blocking));
  OK(cuMemsetD8Async(memory, 2, 4096, nullptr));
  WANT(600, cuStreamQuery(blocking));
  WANT(600, cuStreamQuery(nullptr));
  CUevent event = nullptr;
  OK(cuEventCreate(&event, 0));
  OK(cuEventRecord(event, nullptr));
  WANT(600, cuEventQuery(event));
  gate.Open();
  OK(cuEventSynchronize(event));
  unsigned char value = 0;
  OK(cuMemcpyDtoH(&value, memory + 4095, 1));
  CHECK(value == 2);
}

COMMAND(pageable_copies) {
  // From pageable memory an asynchronous copy has taken its bytes when it returns.
  Start();
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUdeviceptr memory = 0;
  const size_t size = 3'000'001;
  OK(cuMemAlloc(&memory, size));
  std::vector<char> bytes(size, 5), back(size);
  OK(cuMemcpyHtoDAsync(memory, bytes.data(), size, stream));
  memset(bytes.data(), 6, size);
  OK(cuMemcpyDtoHAsync(back.data(), memory, size, stream));
  OK(cuStreamSynchronize(stream));
  CHECK(back == std::vector<char>(size, 5));
}

}  // namespace smolvm::remoting
