// Threads, forks and exits.
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "tests/conformance/remoting/guest/command.h"

namespace smolvm::remoting {

COMMAND(fork_after_init) {
  const CUcontext context = Start();
  CUdeviceptr memory = 0;
  OK(cuMemAlloc(&memory, 4096));
  OK(cuMemsetD8(memory, 9, 4096));
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);  // ends a child that hangs
    int count = 0;
    char byte = 0;
    void* host = nullptr;
    CUcontext current = nullptr;
    WANT(3, cuInit(0));
    WANT(3, cuDeviceGetCount(&count));
    WANT(3, cuMemcpyDtoH(&byte, memory, 1));
    WANT(3, cuMemsetD8Async(memory, 1, 4096, nullptr));
    WANT(3, cuMemHostAlloc(&host, 4096, 0));
    WANT(3, cuCtxGetCurrent(&current));
    WANT(3, cuCtxSynchronize());
    WANT(3, cuCtxDestroy(context));
    exit(0);  // with the handlers that were registered before the fork
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  WANT(0, status);
  char bytes[4096];
  OK(cuMemcpyDtoH(bytes, memory, sizeof bytes));
  for (const char byte : bytes) CHECK(byte == 9);
  RoundTrip(1 << 20, 1);
}

// A fork while other threads make calls: neither side may hang.
COMMAND(fork_in_traffic) {
  const CUcontext context = Start();
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      OK(cuCtxSetCurrent(context));
      while (!stop) RoundTrip(100'000, i);
    });
  }
  for (int i = 0; i < 10; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(10);
      int count = 0;
      WANT(3, cuDeviceGetCount(&count));
      WANT(3, cuCtxSynchronize());
      _exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    WANT(0, status);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

COMMAND(fork_before_init) {
  const pid_t child = fork();
  if (child == 0) {
    Start();
    RoundTrip(4096, 1);
    _exit(0);
  }
  Start();
  RoundTrip(4096, 2);
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  WANT(0, status);
}

COMMAND(vfork_and_exec) {
  Start();
  for (int i = 0; i < 5; ++i) {
    const pid_t child = vfork();
    if (child == 0) {
      execl("/bin/true", "true", nullptr);
      _exit(127);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    WANT(0, status);
    RoundTrip(4096, i);
  }
  WANT(0, system("exit 0"));
}

COMMAND(threads) {
  const CUcontext context = Start();
  constexpr int kThreads = 300;
  std::atomic<int> ready{0};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      ++ready;
      while (ready < kThreads) std::this_thread::yield();
      CUcontext current = Garbage<CUcontext>();
      OK(cuCtxGetCurrent(&current));
      CHECK(current == nullptr);
      CUdeviceptr memory = 0;
      WANT(201, cuMemAlloc(&memory, 16));
      OK(cuCtxPushCurrent(context));
      RoundTrip(4096, i);
      OK(cuCtxPopCurrent(&current));
      CHECK(current == context);
    });
  }
  for (std::thread& thread : threads) thread.join();
  RoundTrip(4096, 0);
}

COMMAND(context_between_threads) {
  OK(cuInit(0));
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  std::thread([&] {
    OK(cuCtxCreate(&context, nullptr, 0, 0));
    OK(cuMemAlloc(&memory, 4096));
    OK(cuMemsetD8Async(memory, 3, 4096, nullptr));
    OK(cuCtxPopCurrent(nullptr));
  }).join();
  OK(cuCtxPushCurrent(context));
  unsigned char value = 0;
  OK(cuMemcpyDtoH(&value, memory + 4095, 1));
  CHECK(value == 3);
  OK(cuCtxDestroy(context));
  CUcontext current = Garbage<CUcontext>();
  OK(cuCtxGetCurrent(&current));
  CHECK(current == nullptr);
}

COMMAND(cancelled_thread) {
  const CUcontext context = Start();
  CUdeviceptr memory = 0;
  OK(cuMemAlloc(&memory, 100'000));
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  std::atomic<bool> open{false};
  OK(cuLaunchHostFunc(
      stream, [](void* gate) { static_cast<std::atomic<bool>*>(gate)->wait(false); }, &open));
  struct Shared {
    CUcontext context;
    CUstream stream;
    std::atomic<bool> waits{false};
  } shared{context, stream};
  pthread_t thread;
  CHECK(pthread_create(
            &thread, nullptr,
            [](void* data) -> void* {
              auto* shared = static_cast<Shared*>(data);
              OK(cuCtxSetCurrent(shared->context));
              shared->waits = true;
              OK(cuStreamSynchronize(shared->stream));
              pthread_testcancel();
              return nullptr;
            },
            &shared) == 0);
  while (!shared.waits) std::this_thread::yield();
  usleep(20'000);
  CHECK(pthread_cancel(thread) == 0);
  CopyThereAndBack(memory, 100'000, 1);  // others are not held up
  open = true;
  open.notify_all();
  void* result = nullptr;
  CHECK(pthread_join(thread, &result) == 0);
  CHECK(result == PTHREAD_CANCELED);
  RoundTrip(100'000, 2);
  OK(cuStreamSynchronize(stream));
}

COMMAND(calls_at_exit) {
  static CUdeviceptr memory = 0;
  atexit([] {
    unsigned char value = 0;
    OK(cuMemcpyDtoH(&value, memory, 1));
    CHECK(value == 4);
    OK(cuMemFree(memory));
    RoundTrip(1 << 16, 1);
    CUcontext context = nullptr;
    OK(cuCtxGetCurrent(&context));
    OK(cuCtxDestroy(context));
    Say("at exit");
  });
  Start();
  OK(cuMemAlloc(&memory, 16));
  OK(cuMemsetD8Async(memory, 4, 16, nullptr));
}

// A process that ends while its threads wait and make calls.
COMMAND(exit_in_traffic) {
  const CUcontext context = Start();
  for (unsigned i = 0; i < 8; ++i) {
    std::thread([=] {
      if (cuCtxSetCurrent(context) != CUDA_SUCCESS) return;
      CUdeviceptr memory = 0;
      while (cuMemAlloc(&memory, 4096) == CUDA_SUCCESS && cuMemFree(memory) == CUDA_SUCCESS) {
      }
    }).detach();
  }
  usleep(50'000);
}

}  // namespace smolvm::remoting
