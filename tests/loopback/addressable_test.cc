// Copies of a host that can address its device's memory, as the emulation device's can be: what
// goes straight between the connection and that memory, what is put off, and what ends the session.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "host-daemon/dispatch/dispatcher.h"
#include "host-daemon/session/session.h"
#include "protocol/api/call_ids.h"
#include "protocol/api/copy.wire.h"
#include "protocol/api/memory.wire.h"
#include "protocol/api/recording_driver.h"
#include "protocol/api/session.wire.h"
#include "protocol/api/stream.wire.h"

namespace smolvm::loopback {
namespace {

constexpr size_t kBytes = size_t{3} << 20;
constexpr size_t kPutOff = dispatch::CopiesBack::kPutOffFrom;

const CUevent kEvent = reinterpret_cast<CUevent>(0x1077);
const CUcontext kContext = reinterpret_cast<CUcontext>(0x1001);

// What the guest got in answer to a call, with the copies back that came ahead of it.
struct Answer {
  bool ended = false;  // the session, before the answer was whole
  uint32_t status = 0;
  std::string bulk;
  std::string copy_back;
};

// The guest is written by hand, since a real one would keep these addresses free in this process.
class Addressable : public testing::Test {
 protected:
  void SetUp() override {
    // Of its own pages, so that a test can take some away.
    void* got = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(got, MAP_FAILED);
    device_ = static_cast<char*>(got);
    for (size_t i = 0; i < kBytes; ++i) device_[i] = Pattern(i);
    SetUpDriver();
    dispatcher_.memory().Add(Address(), kBytes, kContext);
    int fds[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    guest_ = std::make_unique<transport::Channel>(fds[0]);
    session_ = std::make_unique<session::Session>(std::make_unique<transport::Channel>(fds[1]),
                                                  dispatcher_, session::SessionLimits{});
    server_ = std::thread([this] { session_->Run(); });
  }
  void TearDown() override {
    guest_.reset();
    if (server_.joinable()) server_.join();
    session_.reset();
    munmap(device_, kBytes);
  }
  void SetUpDriver() {
    driver_.cuCtxGetCurrent = [](CUcontext* context) {
      *context = kContext;
      return CUDA_SUCCESS;
    };
    driver_.cuCtxPushCurrent_v2 = [](CUcontext context) {
      EXPECT_EQ(context, kContext);
      return CUDA_SUCCESS;
    };
    driver_.cuCtxPopCurrent_v2 = [](CUcontext*) { return CUDA_SUCCESS; };
    driver_.cuStreamQuery = [](CUstream) { return CUDA_SUCCESS; };
    driver_.cuStreamQuery_ptsz = [](CUstream) { return CUDA_SUCCESS; };
    driver_.cuStreamSynchronize = [](CUstream) { return CUDA_SUCCESS; };
    driver_.cuStreamSynchronize_ptsz = [](CUstream) { return CUDA_SUCCESS; };
    driver_.cuEventCreate = [](CUevent* event, unsigned) {
      *event = kEvent;
      return CUDA_SUCCESS;
    };
    driver_.cuEventRecord = [](CUevent, CUstream) { return CUDA_SUCCESS; };
    driver_.cuEventRecord_ptsz = [](CUevent, CUstream) { return CUDA_SUCCESS; };
    driver_.cuEventDestroy_v2 = [](CUevent) { return CUDA_SUCCESS; };
    driver_.cuEventQuery = [this](CUevent) { return event_status_.load(); };
    driver_.cuMemGetAddressRange_v2 = [this](CUdeviceptr* base, size_t* size, CUdeviceptr) {
      *base = Address();
      *size = kBytes;
      return CUDA_SUCCESS;
    };
    driver_.cuMemcpyHtoD_v2 = [](CUdeviceptr to, const void* from, size_t bytes) {
      memcpy(reinterpret_cast<void*>(to), from, bytes);
      return CUDA_SUCCESS;
    };
    driver_.cuMemcpyDtoH_v2 = [](void* to, CUdeviceptr from, size_t bytes) {
      memcpy(to, reinterpret_cast<void*>(from), bytes);
      return CUDA_SUCCESS;
    };
    const auto copy_back = [](void* to, CUdeviceptr from, size_t bytes, CUstream) {
      memcpy(to, reinterpret_cast<void*>(from), bytes);
      return CUDA_SUCCESS;
    };
    driver_.cuMemcpyDtoHAsync_v2 = copy_back;
    driver_.cuMemcpyDtoHAsync_v2_ptsz = copy_back;
    driver_.cuMemsetD8Async = [](CUdeviceptr at, unsigned char value, size_t bytes, CUstream) {
      memset(reinterpret_cast<void*>(at), value, bytes);
      return CUDA_SUCCESS;
    };
    driver_.cuMemGetInfo_v2 = [](size_t*, size_t*) { return CUDA_SUCCESS; };
  }

  static char Pattern(size_t at) { return static_cast<char>(at * 31 + at / 255); }
  CUdeviceptr Address() const { return reinterpret_cast<CUdeviceptr>(device_); }
  std::string Contents(size_t bytes = kBytes) const { return {device_, bytes}; }
  size_t Count(const std::string& call) {
    const std::lock_guard lock(driver_.mutex);
    return static_cast<size_t>(std::count(driver_.calls.begin(), driver_.calls.end(), call));
  }

  template <typename Request>
  void Send(uint32_t call, const Request& request, uint32_t flags = 0, const std::string& bulk = "",
            size_t bulk_sent = SIZE_MAX) {
    std::string args;
    Encode(request, &args);
    wire::FrameHeader header;
    header.call_id = call;
    header.flags = flags;
    header.sequence = ++sequence_;
    header.lane_or_status = 1;
    header.args_length = static_cast<uint32_t>(args.size());
    header.bulk_length = bulk.size();
    const std::string frame = std::string(reinterpret_cast<const char*>(&header), sizeof header) +
                              args + bulk.substr(0, bulk_sent);
    guest_->Write(frame.data(), frame.size());
  }
  void PostCopyBack(size_t bytes, uint64_t id = 1, uint32_t flags = 0, uint64_t stream = 0) {
    Send(api::id::cuMemcpyDtoHAsync_v2, api::MemcpyDtoHAsyncV2Request{Address(), bytes, stream, id},
         wire::kFlagNoReply | flags);
  }
  // A frame's bytes, or the session's end.
  bool Receive(wire::FrameHeader* header, std::string* args, std::string* bulk) {
    if (!guest_->ReadExactly(header, sizeof *header)) return false;
    args->resize(header->args_length);
    bulk->resize(header->bulk_length);
    return guest_->Read(args->data(), args->size()) && guest_->Read(bulk->data(), bulk->size());
  }
  Answer Await() {
    Answer answer;
    wire::FrameHeader header;
    std::string args, bulk;
    while (Receive(&header, &args, &bulk)) {
      if (header.call_id == wire::kCopyBack) {
        answer.copy_back += bulk;
        continue;
      }
      EXPECT_EQ(header.sequence, sequence_);
      answer.bulk += bulk;
      answer.status = header.lane_or_status;
      if (!(header.flags & wire::kFlagMore)) return answer;
    }
    answer.ended = true;
    return answer;
  }
  Answer Synchronize() {
    Send(api::id::cuStreamSynchronize, api::StreamSynchronizeRequest{});
    return Await();
  }

  driver::RecordingDriver driver_;
  const driver::DriverTable table_ = driver_.Table();
  dispatch::Dispatcher dispatcher_{table_, {.device_memory_is_addressable = true}};
  std::unique_ptr<transport::Channel> guest_;
  std::unique_ptr<session::Session> session_;
  std::thread server_;
  std::atomic<CUresult> event_status_{CUDA_SUCCESS};
  uint64_t sequence_ = 0;
  char* device_ = nullptr;
};

TEST_F(Addressable, OnlyTheFirstPieceGoesThroughTheDriver) {
  size_t copied = 0;
  driver_.cuMemcpyHtoD_v2 = [&](CUdeviceptr to, const void* from, size_t bytes) {
    copied += bytes;
    memcpy(reinterpret_cast<void*>(to), from, bytes);
    return CUDA_SUCCESS;
  };
  std::string sent(kBytes - 7, '\0');
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = Pattern(i + 99);
  Send(api::id::cuMemcpyHtoD_v2, api::MemcpyHtoDV2Request{Address(), sent.size()}, 0, sent);
  EXPECT_EQ(Await().status, 0u);
  EXPECT_TRUE(Contents(sent.size()) == sent);
  EXPECT_EQ(copied, 4096u);
}

TEST_F(Addressable, WhatTheDriverRefusesReachesNoMemory) {
  driver_.cuMemcpyHtoD_v2 = [](CUdeviceptr, const void*, size_t) {
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  };
  const std::string before = Contents();
  Send(api::id::cuMemcpyHtoD_v2, api::MemcpyHtoDV2Request{Address(), kBytes}, 0,
       std::string(kBytes, 'x'));
  EXPECT_EQ(Await().status, uint32_t{CUDA_ERROR_ILLEGAL_ADDRESS});
  EXPECT_TRUE(Contents() == before);
  EXPECT_EQ(Synchronize().status, 0u);  // the rest of the bulk was read past
}

TEST_F(Addressable, AGuestThatGoesInTheMiddleOfItsBytesEndsTheSession) {
  Send(api::id::cuMemcpyHtoD_v2, api::MemcpyHtoDV2Request{Address(), kBytes}, 0,
       std::string(kBytes, 'x'), kBytes / 2);
  guest_.reset();
  server_.join();
}

TEST_F(Addressable, AGuestThatGoesInTheMiddleOfACopyBackEndsTheSession) {
  PostCopyBack(kBytes);
  Send(api::id::cuStreamSynchronize, api::StreamSynchronizeRequest{});
  char some[100'000];
  EXPECT_TRUE(guest_->Read(some, sizeof some));
  guest_.reset();
  server_.join();
}

TEST_F(Addressable, ACopyBackIsWhole) {
  Send(api::id::cuMemcpyDtoH_v2, api::MemcpyDtoHV2Request{Address(), kBytes});
  const Answer answer = Await();
  EXPECT_EQ(answer.status, 0u);
  EXPECT_TRUE(answer.bulk == Contents());
}

// Were the next frame sent behind half of the bytes, the guest would take it for the other half.
TEST_F(Addressable, MemoryThatGoesAwayWhileItIsSentEndsTheSession) {
  ASSERT_EQ(mprotect(device_ + kBytes / 2, kBytes / 2, PROT_NONE), 0);
  Send(api::id::cuMemcpyDtoH_v2, api::MemcpyDtoHV2Request{Address(), kBytes});
  EXPECT_TRUE(Await().ended);
  server_.join();
}

TEST_F(Addressable, MemoryThatGoesAwayWhileItIsFilledEndsTheSession) {
  ASSERT_EQ(mprotect(device_ + kBytes / 2, kBytes / 2, PROT_NONE), 0);
  Send(api::id::cuMemcpyHtoD_v2, api::MemcpyHtoDV2Request{Address(), kBytes}, 0,
       std::string(kBytes, 'x'));
  EXPECT_TRUE(Await().ended);
  server_.join();
}

TEST_F(Addressable, ALargeCopyBackIsSentFromWhereItLies) {
  PostCopyBack(kBytes);
  const Answer answer = Synchronize();
  EXPECT_EQ(answer.status, 0u);
  EXPECT_TRUE(answer.copy_back == Contents());
  EXPECT_EQ(Count("cuMemcpyDtoHAsync_v2"), 0u);
  EXPECT_EQ(Count("cuEventDestroy_v2"), 1u);
  EXPECT_EQ(Synchronize().copy_back, "");
}

TEST_F(Addressable, WhatIsSubmittedBehindACopyBackDoesNotChangeIt) {
  const std::string before = Contents();
  PostCopyBack(kBytes);
  Send(api::id::cuMemsetD8Async, api::MemsetD8AsyncRequest{Address(), 'x', kBytes, 0},
       wire::kFlagNoReply);
  EXPECT_TRUE(Synchronize().copy_back == before);
  EXPECT_EQ(Count("cuMemcpyDtoHAsync_v2"), 1u);
  EXPECT_EQ(Count("cuEventRecord"), 2u);  // where it would have stood, and where it stands
  EXPECT_EQ(Count("cuCtxPushCurrent_v2"), Count("cuCtxPopCurrent_v2"));
  EXPECT_EQ(device_[0], 'x');
}

TEST_F(Addressable, SeveralCopiesBackAreAllSentFromWhereTheyLie) {
  for (uint64_t id = 1; id <= 3; ++id) PostCopyBack(kPutOff, id);
  const std::string once = Contents(kPutOff);
  EXPECT_TRUE(Synchronize().copy_back == once + once + once);
  EXPECT_EQ(Count("cuMemcpyDtoHAsync_v2"), 0u);
}

TEST_F(Addressable, ACopyBackWaitsForTheWorkBeforeIt) {
  event_status_ = CUDA_ERROR_NOT_READY;
  PostCopyBack(kBytes);
  EXPECT_EQ(Synchronize().copy_back, "");  // of another stream, say
  device_[5] = 'k';                        // a kernel that was there before
  event_status_ = CUDA_SUCCESS;
  EXPECT_TRUE(Synchronize().copy_back == Contents());
}

TEST_F(Addressable, AFailureOnTheWaySendsNoBytes) {
  PostCopyBack(kBytes);
  event_status_ = CUDA_ERROR_ILLEGAL_ADDRESS;
  EXPECT_EQ(Synchronize().copy_back, "");
  EXPECT_EQ(Count("cuEventDestroy_v2"), 1u);
}

TEST_F(Addressable, ACopyThatCannotTakeItsPlaceSendsNoBytes) {
  driver_.cuMemcpyDtoHAsync_v2 = [](void*, CUdeviceptr, size_t, CUstream) {
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  };
  PostCopyBack(kBytes);
  Send(api::id::cuMemGetInfo_v2, api::None{});
  EXPECT_EQ(Await().copy_back, "");
  EXPECT_EQ(Count("cuEventDestroy_v2"), 1u);
}

TEST_F(Addressable, SmallCopiesAndThoseOfAThreadsOwnStreamAreNotPutOff) {
  PostCopyBack(kPutOff - 1);
  EXPECT_TRUE(Synchronize().copy_back == Contents(kPutOff - 1));
  EXPECT_EQ(Count("cuMemcpyDtoHAsync_v2"), 1u);
  PostCopyBack(kPutOff, 2, wire::kFlagPerThreadStream);
  EXPECT_TRUE(Synchronize().copy_back == Contents(kPutOff));
  EXPECT_EQ(Count("cuMemcpyDtoHAsync_v2_ptsz"), 1u);
}

TEST_F(Addressable, NoMoreThanSoManyArePutOff) {
  for (uint64_t id = 1; id <= 66; ++id) PostCopyBack(kPutOff, id);
  EXPECT_EQ(Synchronize().copy_back.size(), 66 * kPutOff);
  EXPECT_EQ(Count("cuMemcpyDtoHAsync_v2"), 2u);
  PostCopyBack(kPutOff, 67);  // there is room again
  EXPECT_EQ(Synchronize().copy_back.size(), kPutOff);
  EXPECT_EQ(Count("cuMemcpyDtoHAsync_v2"), 2u);
}

}  // namespace
}  // namespace smolvm::loopback
