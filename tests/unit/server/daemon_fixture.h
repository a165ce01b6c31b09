// A daemon in a process of its own, with the tests' worker, and guests that speak to it.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "protocol/api/session.wire.h"
#include "protocol/transport/channel.h"
#include "protocol/transport/endpoint.h"
#include "protocol/wire/frame.h"
#include "tests/unit/server/fake_calls.h"

namespace smolvm::server {

using Seconds = std::chrono::seconds;
// For what must happen; long, because machines may be busy.
inline constexpr Seconds kPatience{30};

// A connection of a guest.
class GuestEnd {
 public:
  explicit GuestEnd(int fd) : channel_(fd) {}

  static std::string Frame(uint32_t call, const std::string& args, uint64_t sequence = 0) {
    wire::FrameHeader header;
    header.call_id = call;
    header.sequence = sequence;
    header.lane_or_status = 1;
    header.args_length = static_cast<uint32_t>(args.size());
    return std::string(reinterpret_cast<const char*>(&header), sizeof header) + args;
  }
  static std::string HelloFrame(const std::string& token = "") {
    api::Hello hello;
    hello.protocol_version = wire::kProtocolVersion;
    hello.program = "a test";
    hello.callback_token = token;
    std::string args;
    api::Encode(hello, &args);
    return Frame(wire::kHello, args);
  }
  void Send(const std::string& bytes) { channel_.Write(bytes.data(), bytes.size()); }
  bool Receive(wire::FrameHeader* header, std::string* args) {
    char bytes[wire::kFrameHeaderBytes];
    if (!channel_.Read(bytes, sizeof bytes)) return false;
    *header = wire::LoadFrameHeader(bytes);
    args->resize(header->args_length);
    return channel_.Read(args->data(), args->size());
  }
  // Status of the reply; UINT32_MAX when the connection ends instead.
  uint32_t Hello(const std::string& token = "") {
    Send(HelloFrame(token));
    return HelloReply();
  }
  uint32_t HelloReply() {
    wire::FrameHeader header;
    std::string args;
    if (!Receive(&header, &args)) return UINT32_MAX;
    EXPECT_EQ(header.call_id, wire::kHelloReply);
    reply_ = {};
    EXPECT_TRUE(api::Decode(args, &reply_));
    return reply_.status;
  }
  // The reply's arguments; "gone" when the connection ends instead.
  std::string Ask(uint32_t call, const std::string& args = "") {
    Send(Frame(call, args, ++sequence_));
    wire::FrameHeader header;
    std::string reply;
    if (!Receive(&header, &reply)) return "gone";
    EXPECT_EQ(header.sequence, sequence_);
    status_ = header.lane_or_status;
    return reply;
  }
  bool Ended() {
    char byte;
    return !channel_.Read(&byte, 1);
  }
  const api::HelloReply& reply() const { return reply_; }
  uint32_t status() const { return status_; }
  transport::Channel& channel() { return channel_; }

 private:
  transport::Channel channel_;
  api::HelloReply reply_;
  uint64_t sequence_ = 0;
  uint32_t status_ = 0;
};

class DaemonTest : public testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/smolvm-server-XXXXXX";
    ASSERT_NE(mkdtemp(path), nullptr);
    folder_ = path;
    socket_ = folder_ + "/socket";
  }
  void TearDown() override {
    Kill();
    // The vsock device's process may still be removing its sockets there.
    std::error_code changed;
    do {
      std::filesystem::remove_all(folder_, changed);
    } while (changed == std::errc::no_such_file_or_directory);
    EXPECT_FALSE(changed) << changed.message();
  }

  void Launch(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {DAEMON, "--worker", FAKE_WORKER});
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, ends[1], STDERR_FILENO);
    posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
    ASSERT_EQ(posix_spawn(&pid_, argv[0], &files, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&files);
    close(ends[1]);
    log_fd_ = ends[0];
  }
  // With a Unix socket, the emulation backend "good", and what is given; waits until it is ready.
  void Start(std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{"--listen",  "unix:" + socket_,     "--backend",
                                       "emulation", "--emulation-library", "good"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    Launch(arguments);
    ASSERT_TRUE(AwaitLog("event=ready")) << log_;
  }
  // Reads the log until it has the text, `count` times.
  bool AwaitLog(const std::string& text, int count = 1) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (Count(text) < count) {
      if (std::chrono::steady_clock::now() > deadline || !ReadLog(100)) return Count(text) >= count;
    }
    return true;
  }
  int Count(const std::string& text) const {
    int count = 0;
    for (size_t at = log_.find(text); at != std::string::npos; at = log_.find(text, at + 1)) {
      ++count;
    }
    return count;
  }
  // False at its end.
  bool ReadLog(int timeout_ms) {
    pollfd entry{log_fd_, POLLIN, 0};
    if (poll(&entry, 1, timeout_ms) == 0) return true;
    char bytes[4096];
    const ssize_t got = read(log_fd_, bytes, sizeof bytes);
    if (got > 0) log_.append(bytes, static_cast<size_t>(got));
    return got > 0;
  }
  // The daemon's exit status, or -signal. It must end by itself.
  int AwaitExit() {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    int status = 0;
    while (waitpid(pid_, &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > deadline) {
        ADD_FAILURE() << "it does not end";
        return -1000;
      }
      ReadLog(10);
    }
    pid_ = -1;
    while (ReadLog(0) && poll_more()) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  bool poll_more() const {
    pollfd entry{log_fd_, POLLIN, 0};
    return poll(&entry, 1, 0) > 0;
  }
  void Signal(int number) const { kill(pid_, number); }
  void Kill() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
      pid_ = -1;
    }
    if (log_fd_ >= 0) close(log_fd_);
    log_fd_ = -1;
    log_.clear();
  }
  std::unique_ptr<GuestEnd> Connect() {
    std::string error;
    const int fd = transport::Connect({.kind = transport::Endpoint::Kind::kUnix, .path = socket_},
                                      20'000, &error);
    EXPECT_GE(fd, 0) << error;
    return std::make_unique<GuestEnd>(fd);
  }
  std::unique_ptr<GuestEnd> ConnectAndGreet() {
    auto guest = Connect();
    EXPECT_EQ(guest->Hello(), 0u) << guest->reply().message;
    return guest;
  }
  static bool IsAlive(pid_t pid) {
    return std::filesystem::exists("/proc/" + std::to_string(pid) + "/exe");
  }
  static bool AwaitGone(pid_t pid) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (kill(pid, 0) == 0) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
  }

  std::string folder_, socket_, log_;
  pid_t pid_ = -1;
  int log_fd_ = -1;
};

}  // namespace smolvm::server
