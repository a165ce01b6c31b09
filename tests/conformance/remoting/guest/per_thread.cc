// Compiled as `nvcc -default-stream per-thread` compiles: cuda.h then names the _ptds and _ptsz
// variants, for which the NULL stream is each thread's own.
#include <atomic>
#include <thread>

#include "tests/conformance/remoting/guest/command.h"

#ifndef CUDA_API_PER_THREAD_DEFAULT_STREAM
#error "compile with -DCUDA_API_PER_THREAD_DEFAULT_STREAM"
#endif

namespace smolvm::remoting {
namespace {

void CUDA_CB AwaitOpen(void* gate) { static_cast<std::atomic<bool>*>(gate)->wait(false); }

void Open(std::atomic<bool>* gate) {
  *gate = true;
  gate->notify_all();
}

}  // namespace

// While one thread's default stream is held up, another thread's does all of its work: were they
// one stream, or did one wait for the other, this would never end.
COMMAND(per_thread_streams) {
  const CUcontext context = Start();
  CUdeviceptr memory = 0;
  OK(cuMemAlloc(&memory, 100'000));
  std::atomic<bool> open{false};
  OK(cuLaunchHostFunc(nullptr, AwaitOpen, &open));
  OK(cuMemsetD8Async(memory, 1, 100'000, nullptr));
  std::thread([&] {
    OK(cuCtxSetCurrent(context));
    OK(cuStreamQuery(nullptr));
    OK(cuMemsetD8Async(memory, 2, 50'000, nullptr));
    CUevent event = nullptr;
    OK(cuEventCreate(&event, 0));
    OK(cuEventRecord(event, nullptr));
    OK(cuEventSynchronize(event));
    OK(cuStreamSynchronize(nullptr));
    std::vector<char> there(40'000, 7), back(40'000);
    OK(cuMemcpyHtoD(memory, there.data(), there.size()));
    OK(cuMemcpyDtoH(back.data(), memory, back.size()));
    CHECK(there == back);
    // The handle names the same stream as NULL does here.
    OK(cuStreamQuery(CU_STREAM_PER_THREAD));
  }).join();
  WANT(600, cuStreamQuery(nullptr));
  WANT(600, cuStreamQuery(CU_STREAM_PER_THREAD));
  unsigned char value = 0;
  Open(&open);
  OK(cuStreamSynchronize(nullptr));
  OK(cuMemcpyDtoH(&value, memory + 45'000, 1));
  CHECK(value == 1);
}

// The legacy stream waits for every thread's own stream that was given work before.
COMMAND(per_thread_and_legacy_streams) {
  const CUcontext context = Start();
  std::atomic<bool> open{false};
  OK(cuLaunchHostFunc(CU_STREAM_PER_THREAD, AwaitOpen, &open));
  std::thread([&] {
    OK(cuCtxSetCurrent(context));
    CUdeviceptr memory = 0;
    OK(cuMemAlloc(&memory, 16));
    OK(cuMemsetD8Async(memory, 1, 16, CU_STREAM_LEGACY));
    WANT(600, cuStreamQuery(CU_STREAM_LEGACY));
    Open(&open);
    OK(cuStreamSynchronize(CU_STREAM_LEGACY));
  }).join();
  OK(cuStreamSynchronize(nullptr));
}

// What cuGetProcAddress gives a program that asks for per-thread streams.
COMMAND(per_thread_proc_address) {
  Start();
  CUdriverProcAddressQueryResult status{};
  void *found = nullptr, *legacy = nullptr;
  OK(cuGetProcAddress("cuStreamQuery", &found, 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
                      &status));
  CHECK(found == reinterpret_cast<void*>(&cuStreamQuery));
  OK(cuGetProcAddress("cuStreamQuery", &legacy, 13000, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &status));
  CHECK(legacy != nullptr && legacy != found);
}

}  // namespace smolvm::remoting
