// A handler whose calls do what tests of the session need, and the guest's end of its connection.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "host-daemon/session/session.h"

namespace smolvm::session {

enum FakeCall : uint32_t {
  kEcho = 0x100,   // replies with its arguments; has outputs
  kNote,           // adds its arguments to the log; may be deferred
  kFail,           // returns the status in its arguments (4 bytes); may be deferred
  kBlock,          // says that it blocks, and waits for the gate that its first argument byte names
  kFetch,          // sends as many bytes (8-byte argument) back as bulk, in pieces of 100,000
  kSum,            // reads its bulk in pieces of 1,000 and replies with the sum; may be deferred
  kIgnoreBulk,     // leaves its bulk unread
  kBad,            // finds its arguments malformed
  kThread,         // replies with the id of the thread that runs it
  kAhead,          // has text sent ahead of its reply
  kCallGuest,      // runs a host function in the guest; status 0 or 999
  kFailWithLog,    // status 218, and its arguments as reply
  kStuck,          // waits for its gate without saying that it blocks
  kBlockAndFetch,  // as kBlock, then 300,000 bytes back
  kPastTheEnd,
};
constexpr uint64_t kFakeMaxBulk = 64 << 20;
constexpr uint32_t kFakeMaxArgs = 1024;

class FakeHandler : public Handler {
 public:
  const CallTraits* Traits(uint32_t id) const override {
    static const std::map<uint32_t, CallTraits> traits = [] {
      std::map<uint32_t, CallTraits> all;
      for (uint32_t id = kEcho; id < kPastTheEnd; ++id) {
        const bool outputs = id != kNote && id != kFail;
        all[id] = {"fake", kFakeMaxArgs, kFakeMaxBulk, id == kNote || id == kFail || id == kSum,
                   outputs};
      }
      return all;
    }();
    const auto found = traits.find(id);
    return found == traits.end() ? nullptr : &found->second;
  }

  uint32_t Handle(Call& call) override {
    const std::string args(call.args().data(), call.args().size());
    switch (call.header().call_id) {
      case kEcho:
        Note(args);
        call.reply() = args;
        return 0;
      case kNote:
        Note(args);
        return 0;
      case kFail:
        return static_cast<uint32_t>(Number(args));
      case kBlock:
      case kBlockAndFetch:
        call.AboutToBlock();
        [[fallthrough]];
      case kStuck:
        Await(args.empty() ? 0 : static_cast<unsigned char>(args[0]));
        if (call.header().call_id == kBlockAndFetch) Send(call, 300'000);
        return 0;
      case kFetch:
        Send(call, Number(args));
        return 0;
      case kSum:
        return Sum(call);
      case kIgnoreBulk:
        return 0;
      case kBad:
        return kMalformed;
      case kThread:
        call.reply() = std::to_string(std::hash<std::thread::id>()(std::this_thread::get_id()));
        return 0;
      case kAhead:
        return 0;
      case kCallGuest:
        return call.session().CallGuest(call.args()) ? 0 : 999;
      case kFailWithLog:
        call.reply() = args;
        return 218;
    }
    ADD_FAILURE() << "call " << call.header().call_id;
    return 999;
  }

  void BeforeReply(Call& call) override {
    if (call.header().call_id != kAhead) return;
    call.session().SendAhead(wire::kDeviceOutput, {}, {"text", 4});
  }

  void LaneEnds(uint32_t lane) override {
    std::lock_guard lock(mutex_);
    ended_lanes_.insert(lane);
    changed_.notify_all();
  }

  void Open(int gate) {
    std::lock_guard lock(mutex_);
    open_.insert(gate);
    changed_.notify_all();
  }
  void CloseGates() {
    std::lock_guard lock(mutex_);
    open_.clear();
  }
  void AwaitWaiting(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ >= count; });
  }
  void AwaitLaneEnd(uint32_t lane) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_lanes_.contains(lane); });
  }
  std::vector<std::string> notes() {
    std::lock_guard lock(mutex_);
    return notes_;
  }

  static uint64_t Number(const std::string& bytes) {
    uint64_t number = 0;
    std::memcpy(&number, bytes.data(), std::min(bytes.size(), sizeof number));
    return number;
  }
  static char Pattern(uint64_t at) { return static_cast<char>(at * 31 + at / 255); }

 private:
  void Note(const std::string& text) {
    std::lock_guard lock(mutex_);
    notes_.push_back(text);
  }
  void Await(int gate) {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_.contains(gate); });
    --waiting_;
  }
  static void Send(Call& call, uint64_t size) {
    std::vector<char> piece;
    for (uint64_t at = 0; at < size; at += piece.size()) {
      piece.resize(std::min<uint64_t>(100'000, size - at));
      for (size_t i = 0; i < piece.size(); ++i) piece[i] = Pattern(at + i);
      if (!call.SendBulk(piece.data(), piece.size())) return;
    }
  }
  static uint32_t Sum(Call& call) {
    uint64_t sum = 0;
    char piece[1000];
    while (call.bulk_left() != 0) {
      const size_t size = std::min<uint64_t>(sizeof piece, call.bulk_left());
      if (!call.ReadBulk(piece, size)) return 999;
      for (size_t i = 0; i < size; ++i) sum += static_cast<unsigned char>(piece[i]);
    }
    call.reply() = std::to_string(sum);
    return 0;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> notes_;
  std::set<int> open_;
  std::set<uint32_t> ended_lanes_;
  int waiting_ = 0;
};

struct Received {
  wire::FrameHeader header;
  std::string args;
  std::string bulk;
};

// A session over a socket pair, served by a thread of its own.
class SessionTest : public testing::Test {
 protected:
  void SetUp() override { Start({}); }
  void Start(const SessionLimits& limits) {
    Stop();
    handler_.CloseGates();
    int fds[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    guest_ = std::make_unique<transport::Channel>(fds[0]);
    session_ =
        std::make_unique<Session>(std::make_unique<transport::Channel>(fds[1]), handler_, limits);
    server_ = std::thread([this] {
      session_->Run();
      ended_ = true;
    });
  }
  void TearDown() override { Stop(); }
  void Stop() {
    guest_.reset();
    for (int gate = 0; gate < 256; ++gate) handler_.Open(gate);
    if (server_.joinable()) server_.join();
    session_.reset();
    ended_ = false;
  }
  // Returns once Run has; the guest's end stays open.
  void AwaitEnd() { server_.join(); }

  static std::string Bytes(uint64_t number) {
    return std::string(reinterpret_cast<const char*>(&number), sizeof number);
  }
  static std::string Frame(uint32_t call, uint32_t lane, uint32_t flags, uint64_t sequence,
                           const std::string& args, const std::string& bulk = "") {
    wire::FrameHeader header;
    header.call_id = call;
    header.flags = flags;
    header.sequence = sequence;
    header.lane_or_status = lane;
    header.args_length = static_cast<uint32_t>(args.size());
    header.bulk_length = bulk.size();
    return std::string(reinterpret_cast<const char*>(&header), sizeof header) + args + bulk;
  }
  void SendRaw(const std::string& bytes) { guest_->Write(bytes.data(), bytes.size()); }
  uint64_t Send(uint32_t call, uint32_t lane, const std::string& args = "",
                const std::string& bulk = "", uint32_t flags = 0) {
    SendRaw(Frame(call, lane, flags, ++sequence_, args, bulk));
    return sequence_;
  }
  void Defer(uint32_t call, uint32_t lane, const std::string& args = "",
             const std::string& bulk = "") {
    Send(call, lane, args, bulk, wire::kFlagNoReply);
  }
  bool Receive(Received* received) {
    char bytes[wire::kFrameHeaderBytes];
    if (!guest_->Read(bytes, sizeof bytes)) return false;
    received->header = wire::LoadFrameHeader(bytes);
    received->args.resize(received->header.args_length);
    received->bulk.resize(received->header.bulk_length);
    return guest_->Read(received->args.data(), received->args.size()) &&
           guest_->Read(received->bulk.data(), received->bulk.size());
  }
  // The reply to a call, its bulk gathered.
  Received Reply() {
    Received whole, piece;
    do {
      if (!Receive(&piece)) {
        ADD_FAILURE() << "the session has ended";
        return {};
      }
      EXPECT_TRUE(piece.header.flags & wire::kFlagReply);
      whole.bulk += piece.bulk;
    } while (piece.header.flags & wire::kFlagMore);
    whole.header = piece.header;
    whole.args = piece.args;
    return whole;
  }
  Received Ask(uint32_t call, uint32_t lane, const std::string& args = "",
               const std::string& bulk = "") {
    const uint64_t sequence = Send(call, lane, args, bulk);
    const Received reply = Reply();
    EXPECT_EQ(reply.header.sequence, sequence);
    EXPECT_EQ(reply.header.call_id, call);
    return reply;
  }
  uint32_t Status(uint32_t call, uint32_t lane, const std::string& args = "") {
    return Ask(call, lane, args).header.lane_or_status;
  }
  bool GuestSeesEnd() {
    char byte;
    return !guest_->Read(&byte, 1);
  }

  FakeHandler handler_;
  std::unique_ptr<transport::Channel> guest_;
  std::unique_ptr<Session> session_;
  std::thread server_;
  std::atomic<bool> ended_{false};
  uint64_t sequence_ = 0;
};

}  // namespace smolvm::session
