#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "tests/unit/emulation_api/support.h"

namespace smolvm::emulation {
namespace {

using StreamTest = EmulationTest;

// The per-thread variants that -default-stream per-thread programs call.
extern "C" CUresult cuMemsetD32Async_ptsz(CUdeviceptr, unsigned, size_t, CUstream);
extern "C" CUresult cuStreamQuery_ptsz(CUstream);

TEST_F(StreamTest, DescribesItself) {
  CUstream stream = nullptr;
  ASSERT_CUDA(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, -100));
  int priority = 0;
  unsigned flags = 0;
  unsigned long long id = 0, other = 0;
  CUcontext context = nullptr;
  CUdevice device = 7;
  EXPECT_CUDA(cuStreamGetPriority(stream, &priority));
  EXPECT_EQ(priority, -5);
  EXPECT_CUDA(cuStreamGetFlags(stream, &flags));
  EXPECT_EQ(flags, CU_STREAM_NON_BLOCKING);
  EXPECT_CUDA(cuStreamGetId(stream, &id));
  EXPECT_CUDA(cuStreamGetId(nullptr, &other));
  EXPECT_NE(id, other);
  EXPECT_CUDA(cuStreamGetCtx(stream, &context));
  EXPECT_EQ(context, context_);
  EXPECT_CUDA(cuStreamGetDevice(stream, &device));
  EXPECT_EQ(device, device_);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  EXPECT_CUDA(cuStreamIsCapturing(stream, &status));
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(cuStreamGetFlags(stream, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamCreate(&stream, 0x10), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamDestroy(nullptr), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_CUDA(cuStreamDestroy(stream));
  EXPECT_EQ(cuStreamDestroy(stream), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(StreamTest, KeepsAttributes) {
  const CUstream first = NewStream(), second = NewStream();
  CUstreamAttrValue value = {};
  value.syncPolicy = CU_SYNC_POLICY_SPIN;
  EXPECT_CUDA(cuStreamSetAttribute(first, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
  EXPECT_CUDA(cuStreamCopyAttributes(second, first));
  value = {};
  EXPECT_CUDA(cuStreamGetAttribute(second, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
  EXPECT_EQ(value.syncPolicy, CU_SYNC_POLICY_SPIN);
  EXPECT_EQ(cuStreamGetAttribute(second, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(StreamTest, DestroyLetsQueuedWorkFinish) {
  const CUdeviceptr address = Alloc(4096);
  const CUstream stream = NewStream();
  Gate gate(stream);
  EXPECT_CUDA(cuMemsetD32Async(address, 3, 1, stream));
  EXPECT_CUDA(cuStreamDestroy(stream));
  gate.Open();
  EXPECT_CUDA(cuCtxSynchronize());
  EXPECT_EQ(Word(address), 3u);
}

TEST_F(StreamTest, LegacyStreamWaitsForBlockingStreams) {
  const CUdeviceptr address = Alloc(4096);
  const CUstream blocking = NewStream();
  Gate gate(blocking);
  EXPECT_CUDA(cuMemsetD32Async(address, 1, 1, blocking));
  EXPECT_CUDA(cuMemsetD32Async(address + 4, 1, 1, nullptr));
  EXPECT_EQ(cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
  gate.Open();
  EXPECT_CUDA(cuStreamSynchronize(nullptr));
  EXPECT_EQ(Word(address), 1u);
}

TEST_F(StreamTest, BlockingStreamsWaitForTheLegacyStream) {
  const CUdeviceptr address = Alloc(4096);
  const CUstream blocking = NewStream();
  Gate gate(nullptr);
  EXPECT_CUDA(cuMemsetD32Async(address, 1, 1, blocking));
  EXPECT_EQ(cuStreamQuery(blocking), CUDA_ERROR_NOT_READY);
  gate.Open();
  EXPECT_CUDA(cuStreamSynchronize(blocking));
  EXPECT_EQ(Word(address), 1u);
}

TEST_F(StreamTest, NonBlockingStreamsWaitForNobody) {
  const CUdeviceptr address = Alloc(4096);
  const CUstream independent = NewStream(CU_STREAM_NON_BLOCKING);
  Gate legacy_gate(nullptr);
  uint32_t seen = 0;
  EXPECT_CUDA(cuMemsetD32Async(address, 5, 1, independent));
  EXPECT_CUDA(cuMemcpyDtoHAsync(&seen, address, 4, independent));
  EXPECT_CUDA(cuStreamSynchronize(independent));
  EXPECT_EQ(seen, 5u);
  legacy_gate.Open();
  EXPECT_CUDA(cuStreamSynchronize(nullptr));
  Gate gate(independent);
  EXPECT_CUDA(cuMemcpyDtoH(&seen, address, 4));  // a copy in the legacy stream goes ahead
  EXPECT_EQ(cuStreamQuery(independent), CUDA_ERROR_NOT_READY);
}

TEST_F(StreamTest, PerThreadStreamsOverlap) {
  const CUdeviceptr address = Alloc(4096);
  Gate gate(CU_STREAM_PER_THREAD);
  EXPECT_EQ(cuStreamQuery_ptsz(nullptr), CUDA_ERROR_NOT_READY);
  std::thread([&] {
    EXPECT_CUDA(cuCtxSetCurrent(context_));
    EXPECT_CUDA(cuMemsetD32Async_ptsz(address, 4, 1, nullptr));
    EXPECT_CUDA(cuStreamSynchronize(CU_STREAM_PER_THREAD));  // not held up by the other thread's
    EXPECT_CUDA(cuStreamQuery_ptsz(nullptr));
  }).join();
  gate.Open();
  EXPECT_CUDA(cuStreamSynchronize(CU_STREAM_PER_THREAD));
  EXPECT_EQ(Word(address), 4u);
}

TEST_F(StreamTest, HostFunctionsRunInOrderAndMayNotCallCuda) {
  struct Seen {
    std::vector<int> order;
    CUresult inside = CUDA_SUCCESS;
    CUresult init = CUDA_SUCCESS;
  } seen;
  const CUstream stream = NewStream();
  EXPECT_CUDA(cuLaunchHostFunc(
      stream,
      [](void* data) {
        auto* seen = static_cast<Seen*>(data);
        seen->order.push_back(1);
        size_t free = 0, total = 0;
        seen->inside = cuMemGetInfo(&free, &total);
        int count = 0;
        seen->init = cuDeviceGetCount(&count);
      },
      &seen));
  EXPECT_CUDA(cuStreamAddCallback(
      stream,
      [](CUstream, CUresult status, void* data) {
        static_cast<Seen*>(data)->order.push_back(status == CUDA_SUCCESS ? 2 : -1);
      },
      &seen, 0));
  EXPECT_CUDA(cuStreamSynchronize(stream));
  EXPECT_EQ(seen.order, (std::vector<int>{1, 2}));
  EXPECT_EQ(seen.inside, CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(seen.init, CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(cuLaunchHostFunc(stream, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamAddCallback(stream, nullptr, nullptr, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(StreamTest, EventsOrderStreams) {
  const CUdeviceptr address = Alloc(4096);
  const CUstream first = NewStream(CU_STREAM_NON_BLOCKING),
                 second = NewStream(CU_STREAM_NON_BLOCKING);
  CUevent event = nullptr;
  ASSERT_CUDA(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  EXPECT_CUDA(cuEventQuery(event));  // never recorded: nothing to wait for
  EXPECT_CUDA(cuStreamWaitEvent(second, event, 0));
  Gate gate(first);
  EXPECT_CUDA(cuMemsetD32Async(address, 1, 1, first));
  EXPECT_CUDA(cuEventRecord(event, first));
  EXPECT_CUDA(cuStreamWaitEvent(second, event, 0));
  uint32_t seen = 0;
  void* pinned = nullptr;
  ASSERT_CUDA(cuMemAllocHost(&pinned, 4));
  EXPECT_CUDA(cuMemcpyDtoHAsync(pinned, address, 4, second));
  EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(cuStreamQuery(second), CUDA_ERROR_NOT_READY);
  gate.Open();
  EXPECT_CUDA(cuStreamSynchronize(second));
  std::memcpy(&seen, pinned, 4);
  EXPECT_EQ(seen, 1u);
  EXPECT_CUDA(cuEventSynchronize(event));
  EXPECT_CUDA(cuEventDestroy(event));
  EXPECT_EQ(cuEventDestroy(event), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(StreamTest, EventsOfAWholeContext) {
  const CUdeviceptr address = Alloc(4096);
  const CUstream first = NewStream(CU_STREAM_NON_BLOCKING), second = NewStream();
  CUevent event = nullptr;
  ASSERT_CUDA(cuEventCreate(&event, 0));
  Gate gate(first);
  EXPECT_CUDA(cuMemsetD32Async(address, 6, 1, first));
  EXPECT_CUDA(cuCtxRecordEvent(context_, event));
  EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_NOT_READY);
  EXPECT_CUDA(cuCtxWaitEvent(context_, event));
  EXPECT_CUDA(cuMemsetD32Async(address, 7, 1, second));
  const CUstream later = NewStream(CU_STREAM_NON_BLOCKING);
  EXPECT_CUDA(cuMemsetD32Async(address + 4, 8, 1, later));
  EXPECT_EQ(cuStreamQuery(second), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(cuStreamQuery(later), CUDA_ERROR_NOT_READY);
  gate.Open();
  EXPECT_CUDA(cuCtxSynchronize());
  EXPECT_CUDA(cuEventQuery(event));
  EXPECT_EQ(Word(address), 7u);
  EXPECT_EQ(cuCtxRecordEvent(Garbage<CUcontext>(), event), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuCtxWaitEvent(context_, Garbage<CUevent>()), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(StreamTest, EventsTakeTime) {
  CUevent begin = nullptr, end = nullptr, untimed = nullptr;
  ASSERT_CUDA(cuEventCreate(&begin, CU_EVENT_BLOCKING_SYNC));
  ASSERT_CUDA(cuEventCreate(&end, 0));
  ASSERT_CUDA(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
  float milliseconds = -1;
  EXPECT_EQ(cuEventElapsedTime(&milliseconds, begin, end), CUDA_ERROR_INVALID_HANDLE);
  const CUstream stream = NewStream();
  EXPECT_CUDA(cuEventRecord(begin, stream));
  Gate gate(stream);
  EXPECT_CUDA(cuEventRecordWithFlags(end, stream, CU_EVENT_RECORD_DEFAULT));
  EXPECT_EQ(cuEventElapsedTime(&milliseconds, begin, end), CUDA_ERROR_NOT_READY);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  gate.Open();
  EXPECT_CUDA(cuEventSynchronize(end));
  EXPECT_CUDA(cuEventElapsedTime(&milliseconds, begin, end));
  EXPECT_GE(milliseconds, 5.0f);
  EXPECT_CUDA(cuEventRecord(untimed, stream));
  EXPECT_EQ(cuEventElapsedTime(&milliseconds, begin, untimed), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuEventCreate(&end, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuEventCreate(&end, 0x100), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(StreamTest, ValuesInMemoryOrderStreams) {
  const CUdeviceptr address = Alloc(4096);
  const CUstream waiting = NewStream(CU_STREAM_NON_BLOCKING),
                 writing = NewStream(CU_STREAM_NON_BLOCKING);
  EXPECT_CUDA(cuStreamWaitValue32(waiting, address, 5, CU_STREAM_WAIT_VALUE_GEQ));
  EXPECT_CUDA(cuMemsetD32Async(address + 8, 1, 1, waiting));
  EXPECT_EQ(cuStreamQuery(waiting), CUDA_ERROR_NOT_READY);
  EXPECT_CUDA(cuStreamWriteValue32(writing, address, 7, 0));
  EXPECT_CUDA(cuStreamSynchronize(waiting));
  EXPECT_EQ(Word(address + 8), 1u);
  CUstreamBatchMemOpParams operations[2] = {};
  operations[0].writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_64, address + 16, {}, 0, 0};
  operations[0].writeValue.value64 = uint64_t{1} << 40;
  operations[1].waitValue = {
      CU_STREAM_MEM_OP_WAIT_VALUE_64, address + 16, {}, CU_STREAM_WAIT_VALUE_AND, 0};
  operations[1].waitValue.value64 = uint64_t{1} << 40;
  EXPECT_CUDA(cuStreamBatchMemOp(waiting, 2, operations, 0));
  EXPECT_CUDA(cuStreamSynchronize(waiting));
  EXPECT_EQ(Word(address + 20), 1u << 8);
  EXPECT_EQ(cuStreamWaitValue32(waiting, address + 1, 5, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamWaitValue32(waiting, 0, 5, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamWaitValue32(waiting, address, 5, CU_STREAM_WAIT_VALUE_FLUSH),
            CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuStreamWriteValue64(waiting, address + 4, 5, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(StreamTest, AContextEndsWithAWaitThatNothingSatisfies) {
  CUcontext other = nullptr;
  ASSERT_CUDA(cuCtxCreate(&other, nullptr, 0, device_));
  CUdeviceptr address = Alloc(4096);
  const CUstream stream = NewStream();
  EXPECT_CUDA(cuStreamWaitValue32(stream, address, 5, CU_STREAM_WAIT_VALUE_EQ));
  EXPECT_CUDA(cuCtxDestroy(other));
}

TEST_F(StreamTest, ManyStreamsAndThreads) {
  constexpr int kStreams = 16, kRounds = 200;
  const CUdeviceptr address = Alloc(4 * (kStreams + 1) * 4);
  std::vector<std::thread> threads;
  std::vector<CUstream> streams;
  for (int i = 0; i < kStreams; ++i)
    streams.push_back(NewStream(i % 2 ? CU_STREAM_NON_BLOCKING : 0));
  CUevent event = nullptr;
  ASSERT_CUDA(cuEventCreate(&event, 0));
  std::atomic<int> failures = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      failures += cuCtxSetCurrent(context_) != CUDA_SUCCESS;
      for (int round = 0; round < kRounds; ++round) {
        const int pick = (i + round) % kStreams;
        const CUstream stream = round % 7 ? streams[pick] : nullptr;
        // A word of its own for each thread and stream: unordered writes to one would be the
        // program's race.
        const int word = i * (kStreams + 1) + (stream == nullptr ? kStreams : pick);
        failures += cuMemsetD32Async(address + 4 * word, 1, 1, stream) != CUDA_SUCCESS;
        if (round % 3 == 0) failures += cuEventRecord(event, streams[pick]) != CUDA_SUCCESS;
        failures += cuStreamWaitEvent(streams[(pick + 5) % kStreams], event, 0) != CUDA_SUCCESS;
        if (round % 16 == 0) {
          failures += cuLaunchHostFunc(
                          streams[pick], [](void*) {}, nullptr) != CUDA_SUCCESS;
          failures += cuStreamSynchronize(streams[(pick + 1) % kStreams]) != CUDA_SUCCESS;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_CUDA(cuCtxSynchronize());
  EXPECT_EQ(failures, 0);
}

int ThreadsOfThisProcess() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("Threads:", 0) == 0) return std::stoi(line.substr(8));
  }
  return -1;
}

// An attack had six thousand threads in a second.
TEST_F(StreamTest, StreamsBeyondAFewHundredRunWithoutThreads) {
  constexpr int kStreams = 700;
  const int before = ThreadsOfThisProcess();
  ASSERT_GT(before, 0);
  std::vector<CUstream> streams;
  std::atomic<int> done = 0;
  for (int i = 0; i < kStreams; ++i) {
    streams.push_back(NewStream());
    ASSERT_CUDA(cuLaunchHostFunc(
        streams.back(), [](void* count) { ++*static_cast<std::atomic<int>*>(count); }, &done));
  }
  for (const CUstream stream : streams) EXPECT_CUDA(cuStreamSynchronize(stream));
  EXPECT_EQ(done, kStreams);
  EXPECT_LE(ThreadsOfThisProcess(), before + 256);
  // Those that are idle give their threads back; the streams go on to work.
  for (int k = 0; k < 1000 && ThreadsOfThisProcess() > before + 16; ++k)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_LE(ThreadsOfThisProcess(), before + 16);
  for (int i = 0; i < kStreams; i += 100) {
    EXPECT_CUDA(cuLaunchHostFunc(
        streams[i], [](void* count) { ++*static_cast<std::atomic<int>*>(count); }, &done));
    EXPECT_CUDA(cuStreamSynchronize(streams[i]));
  }
  EXPECT_EQ(done, kStreams + 7);
  for (const CUstream stream : streams) EXPECT_CUDA(cuStreamDestroy(stream));
}

}  // namespace
}  // namespace smolvm::emulation
