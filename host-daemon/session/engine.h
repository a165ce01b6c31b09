// The inside of a session: whose turn it is to read the connection, and how a turn changes hands.
//
// The turn belongs to one lane's thread or to the spare thread (the one that runs Session::Run).
// Who has it reads a frame and runs it if it is its own, else gives the turn, with the frame's
// header, to the frame's lane. A call that is about to block gives the turn to the spare thread,
// which waits for the next frame; if none has come when the call is done, its lane takes the turn
// back, so that a program with one thread is served without any hand-off.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "host-daemon/session/callback_line.h"
#include "host-daemon/session/lane.h"
#include "host-daemon/session/sender.h"
#include "host-daemon/session/session.h"

namespace smolvm::session {

// Lifetime: shared by the session and the threads of its lanes.
// Threads: functions marked (turn) are called by the thread that has the turn alone, and so need no
// lock for the read side. Others lock what they touch.
class Engine : public std::enable_shared_from_this<Engine> {
 public:
  Engine(Session& session, std::unique_ptr<transport::Channel> channel, Handler& handler,
         const SessionLimits& limits);
  ~Engine();

  void Run();             // of the spare thread
  void AwaitLanesGone();  // blocked ones too

  Session& session() { return session_; }
  Handler& handler() { return handler_; }
  transport::Channel& channel() { return *channel_; }
  Sender& sender() { return sender_; }
  CallbackLine& callback_line() { return callback_line_; }

  // (turn) The next frame for `self` (null: the spare thread). False when the turn has passed to
  // another thread, or the session has ended.
  bool NextFrame(Lane* self, wire::FrameHeader* header);
  // (turn) Gives the turn to the spare thread; this lane is about to block.
  void PassToSpare();
  // After PassToSpare: the call no longer blocks; takes the turn back if nobody reads yet. With
  // null, says only the former.
  bool TakeBack(Lane* self);
  // Waits for the turn, which comes with a frame. False when the session has ended.
  bool AwaitTurn(Lane* self, wire::FrameHeader* header);
  // (turn) `self` is no longer found by its id; a new lane may have it.
  void Forget(Lane* self);
  // Must be a lane thread's last act.
  void ThreadEnds();

  // (turn) Answers for a frame that no handler will see; reads past it.
  bool Refuse(const wire::FrameHeader& header, uint32_t status);
  // (turn) Logs an id without a handler, once.
  void NoteUnknown(uint32_t call_id);

  // Ends the session: no frame is read after it. The first reason counts.
  void End(const std::string& reason, bool clean);
  void EndMalformed(const wire::FrameHeader& header, const char* what);
  // After a failed read: end of stream, cut off in a frame, or an error.
  void EndOfStream(const char* where);

 private:
  bool ReadHeader(wire::FrameHeader* header);
  bool Control(const wire::FrameHeader& header);
  bool GiveTo(const wire::FrameHeader& header);
  std::shared_ptr<Lane> LaneFor(uint32_t id);
  bool StartThread(const std::shared_ptr<Lane>& lane);
  void Nudge();
  void SpareWaits(std::unique_lock<std::mutex>& lock);
  void SpareReads(std::unique_lock<std::mutex>& lock);

  Session& session_;
  Handler& handler_;
  const SessionLimits limits_;
  const std::unique_ptr<transport::Channel> channel_;
  Sender sender_;
  CallbackLine callback_line_;
  const int nudge_;              // eventfd: gets the spare thread out of poll
  std::vector<bool> noted_ids_;  // with the turn

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  Lane* holder_ = nullptr;           // null: the spare thread
  bool spare_polls_frames_ = false;  // with the turn, it is in poll
  bool spare_reads_ = false;         // with the turn, it reads a frame
  std::unordered_map<uint32_t, std::shared_ptr<Lane>> lanes_;
  uint32_t threads_ = 0;     // of lanes
  uint32_t blocked_ = 0;     // of those, in a call that blocks or in Handler::LaneEnds
  bool guest_left_ = false;  // its end of the connection is closed; frames may still be buffered
  bool ended_ = false;
};

}  // namespace smolvm::session
