// Worker processes: started ahead of need, given one session each, watched until they end.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "host-daemon/server/greeting.h"
#include "host-daemon/server/log_pipe.h"
#include "host-daemon/server/process.h"

namespace smolvm::server {

struct PoolConfig {
  std::string program;
  std::vector<std::string> arguments;
  uint32_t ready = 2;
  uint32_t max_sessions = 64;
};

// Lifetime: until the io_context has ended.
// Threads: the io_context's.
class WorkerPool {
 public:
  struct Events {
    // The first worker is ready; text: key=value fields about its backend.
    std::function<void(const std::string&)> ready;
    // No worker could ever be started: there is nothing to serve with.
    std::function<void(const std::string&)> hopeless;
    // A guest has waited too long for a worker. The descriptor is the receiver's.
    std::function<void(Guest)> unserved;
    // A session has ended.
    std::function<void()> ended;
  };
  WorkerPool(boost::asio::io_context& io, PoolConfig config, Events events);
  ~WorkerPool();

  void Start() { Refill(); }
  // Sessions that run, and guests that wait for a worker.
  size_t sessions() const { return serving_ + queue_.size(); }
  size_t SessionsOf(const std::string& peer) const;
  // Gives the guest a worker, now or as soon as there is one.
  void Serve(Guest guest);
  // Passes a session's second connection on. False when no session has this token; the descriptor
  // is closed in any case.
  bool PassCallback(const std::string& token, Guest guest);
  // Ends the workers that have no session, and starts no more.
  void Drain();
  void KillAll();
  // To be called on SIGCHLD.
  void Reap();

 private:
  enum class State { kStarting, kReady, kServing };
  struct Worker {
    Worker(boost::asio::io_context& io, const Child& child);
    const pid_t pid;
    const std::shared_ptr<LogPipe> log;
    boost::asio::posix::stream_descriptor control;
    boost::asio::steady_timer start_limit;
    State state = State::kStarting;
    std::string failure;  // what it said before it exited
    uint64_t session = 0;
    std::string from;
    std::string peer;
    std::string token;
    Guest guest;  // until the worker says that it has it, for another worker if this one is dead
    std::chrono::steady_clock::time_point began;
  };
  struct Waiting {
    uint64_t id;
    Guest guest;
    std::unique_ptr<boost::asio::steady_timer> limit;
  };

  void Refill();
  bool StartOne();
  void WatchControl(const std::shared_ptr<Worker>& worker);
  void OnControl(const std::shared_ptr<Worker>& worker);
  void OnMessage(const std::shared_ptr<Worker>& worker, const worker::ControlMessage& message);
  void OnReady(const std::shared_ptr<Worker>& worker, const std::string& text);
  void Assign(const std::shared_ptr<Worker>& worker, Guest guest);
  static void CloseGuest(Worker* worker);
  void OnExit(const std::shared_ptr<Worker>& worker, int status);
  void ServeElsewhere(const std::shared_ptr<Worker>& worker, int status);
  enum StartFailure { kItCannot, kItWasKilled };
  void OnStartFailure(const std::string& reason, StartFailure kind);
  std::shared_ptr<Worker> FindReady() const;

  boost::asio::io_context& io_;
  const PoolConfig config_;
  const Events events_;
  std::map<pid_t, std::shared_ptr<Worker>> workers_;
  std::deque<Waiting> queue_;
  size_t serving_ = 0;
  uint64_t last_session_ = 0;
  uint64_t last_waiting_ = 0;
  bool ever_ready_ = false;
  bool draining_ = false;
  // After failures, workers are started again ever more slowly.
  uint32_t failures_ = 0;
  bool pausing_ = false;
  boost::asio::steady_timer pause_;
};

}  // namespace smolvm::server
