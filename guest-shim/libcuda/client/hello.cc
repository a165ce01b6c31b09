#include "guest-shim/libcuda/client/hello.h"

#include <errno.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "guest-shim/libcuda/state/session.h"
#include "protocol/api/call_ids.h"
#include "protocol/log/log.h"
#include "protocol/transport/endpoint.h"
#include "protocol/wire/frame.h"

namespace smolvm::guest {
namespace {

// For the connection and the answer together; a busy host starts a worker first.
constexpr int kOpenTimeoutMs = 4700;

std::string KnownCalls() {
  std::string bits((wire::kMaxCallId + 1) / 8, '\0');
  for (const uint32_t id : api::kCallIds)
    bits[id / 8] = static_cast<char>(bits[id / 8] | 1 << id % 8);
  return bits;
}

int64_t NowMs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

// Exactly `size` bytes, by `deadline` at the latest.
bool ReadBy(int64_t deadline, int fd, char* to, size_t size) {
  while (size > 0) {
    const int64_t left = deadline - NowMs();
    pollfd entry{fd, POLLIN, 0};
    const int ready = left > 0 ? poll(&entry, 1, static_cast<int>(left)) : 0;
    if (ready == 0) errno = ETIMEDOUT;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t got = recv(fd, to, size, MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK)) continue;
    if (got == 0) errno = 0;
    if (got <= 0) return false;
    to += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

// For the daemon's log.
std::string ProgramName() {
  char name[17] = {};  // PR_GET_NAME: 16 bytes
  prctl(PR_GET_NAME, name);
  return name;
}

bool SendHello(transport::Channel& channel, const std::string& callback_token) {
  api::Hello hello;
  hello.protocol_version = wire::kProtocolVersion;
  hello.spec_version = CUDA_VERSION;
  hello.known_calls = KnownCalls();
  hello.callback_token = callback_token;
  hello.pid = static_cast<uint32_t>(getpid());
  hello.program = ProgramName();
  std::string frame(sizeof(wire::FrameHeader), '\0');
  Encode(hello, &frame);
  wire::FrameHeader header;
  header.call_id = wire::kHello;
  header.args_length = static_cast<uint32_t>(frame.size() - sizeof header);
  wire::StoreFrameHeader(header, frame.data());
  return channel.Write(frame.data(), frame.size());
}

// Past the channel's buffer: the host says nothing more before it is asked.
bool ReadHelloReply(int fd, int64_t deadline, api::HelloReply* reply) {
  wire::FrameHeader header;
  if (!ReadBy(deadline, fd, reinterpret_cast<char*>(&header), sizeof header)) return false;
  if (header.call_id != wire::kHelloReply || header.args_length > wire::kMaxArgsBytes ||
      header.bulk_length != 0) {
    return false;
  }
  std::string args(header.args_length, '\0');
  return ReadBy(deadline, fd, args.data(), args.size()) && Decode(args, reply);
}

// For measurements: SMOLVM_CUDA_EMULATE_RTT_US, as if the host were that far away
// (docs/performance.md).
uint32_t EmulatedRoundTripUs() {
  // A second is farther than any host; with more, a typing error looks like a program that hangs.
  constexpr uint32_t kMaxUs = 1'000'000;
  const char* text = getenv("SMOLVM_CUDA_EMULATE_RTT_US");
  if (!text || !*text) return 0;
  uint32_t us = 0;
  const char* end = text + strlen(text);
  const auto [stop, error] = std::from_chars(text, end, us);
  if (error == std::errc() && stop == end && us <= kMaxUs) return us;
  log::Error("event=bad_setting name=SMOLVM_CUDA_EMULATE_RTT_US value={} hint=\"0 to {}\"",
             log::Quote(text), kMaxUs);
  return 0;
}

// A daemon that has died is started again, by the machine's supervisor after a tenth of a second;
// programs that start in between wait for it a little.
class Patience {
 public:
  // Only where the environment names the endpoint: where it does not, most likely nobody serves.
  explicit Patience(bool allowed) : allowed_(allowed && getenv("SMOLVM_CUDA_ENDPOINT")) {}

  // After a failed attempt: true, some time later, when another one may go better.
  bool WaitAfter(int code) {
    // A socket's file is gone for a moment while the daemon that starts replaces it.
    const bool gone =
        code == ECONNREFUSED || code == ECONNRESET || code == EPIPE || (code == ENOENT && waited_);
    const int64_t now = NowMs();
    if (!waited_) until_ = now + kRestartMs;
    if (!allowed_ || !gone || now + pause_ms_ > until_) return false;
    poll(nullptr, 0, pause_ms_);
    pause_ms_ = std::min(2 * pause_ms_, kLongestPauseMs);
    waited_ = true;
    return true;
  }

 private:
  static constexpr int kRestartMs = 2000;
  static constexpr int kLongestPauseMs = 320;

  const bool allowed_;
  bool waited_ = false;
  int pause_ms_ = 20;
  int64_t until_ = 0;
};

}  // namespace

std::unique_ptr<transport::Channel> OpenChannel(const std::string& callback_token,
                                                api::HelloReply* reply, CUresult* result) {
  *result = CUDA_ERROR_NO_DEVICE;
  const std::string text = EndpointText();
  transport::Endpoint endpoint;
  std::string error;
  if (!transport::ParseEndpoint(text, &endpoint, &error)) {
    log::Error("event=bad_endpoint endpoint={} error={}", log::Quote(text), log::Quote(error));
    return nullptr;
  }
  // A callback connection belongs to a session, which a new daemon does not know.
  Patience patience(callback_token.empty());
  std::unique_ptr<transport::Channel> channel;
  while (!channel) {
    const int64_t deadline = NowMs() + kOpenTimeoutMs;
    const int fd = transport::Connect(endpoint, kConnectTimeoutMs / 2, &error);
    if (fd < 0) {
      if (patience.WaitAfter(errno)) continue;
      log::Error(
          "event=no_daemon endpoint={} error={} hint=\"start smolvm-cuda-daemon on the host\"",
          log::Quote(text), log::Quote(error));
      return nullptr;
    }
    channel = std::make_unique<transport::Channel>(fd);
    if (SendHello(*channel, callback_token) && ReadHelloReply(fd, deadline, reply)) break;
    const int code = errno;
    channel.reset();
    if (patience.WaitAfter(code)) continue;
    log::Error("event=no_hello endpoint={} errno={}", log::Quote(text), code);
    return nullptr;
  }
  if (reply->status != CUDA_SUCCESS) {
    log::Error("event=refused endpoint={} status={} message={}", log::Quote(text), reply->status,
               log::Quote(reply->message));
    *result = static_cast<CUresult>(reply->status);
    return nullptr;
  }
  for (const api::Device& device : reply->devices) {
    if (device.attributes.size() != device.attribute_status.size()) return nullptr;
  }
  // The callback connection (with a token) is where the host asks and the guest answers: a wait
  // there is no round trip.
  if (callback_token.empty()) channel->EmulateRoundTrip(EmulatedRoundTripUs());
  *result = CUDA_SUCCESS;
  return channel;
}

}  // namespace smolvm::guest
