#include "host-daemon/server/worker_pool.h"

#include <signal.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "protocol/log/log.h"

namespace smolvm::server {

using boost::system::error_code;
using worker::ControlHeader;
using worker::ControlMessage;
using worker::ControlResult;
using worker::ControlType;

namespace {

// Loading a driver and cuInit take seconds on a machine with many GPUs.
constexpr std::chrono::seconds kStartLimit{60};
// A guest gives up by itself about then.
constexpr std::chrono::seconds kQueueLimit{10};
constexpr std::chrono::milliseconds kFirstPause{100};
constexpr uint32_t kMostDoublings = 6;
// Before any worker was ever ready.
constexpr uint32_t kMostEarlyKills = 5;

bool MakeToken(char* token) {
  size_t have = 0;
  while (have < worker::kTokenBytes) {
    const ssize_t got = getrandom(token + have, worker::kTokenBytes - have, 0);
    if (got < 0 && errno != EINTR) return false;
    if (got > 0) have += static_cast<size_t>(got);
  }
  return true;
}

}  // namespace

WorkerPool::Worker::Worker(boost::asio::io_context& io, const Child& child)
    : pid(child.pid),
      log(LogPipe::Start(io, child.log, "worker", child.pid)),
      control(io, child.control),
      start_limit(io, kStartLimit) {}

WorkerPool::WorkerPool(boost::asio::io_context& io, PoolConfig config, Events events)
    : io_(io), config_(std::move(config)), events_(std::move(events)), pause_(io) {}

WorkerPool::~WorkerPool() {
  for (Waiting& waiting : queue_) close(waiting.guest.fd);
  for (const auto& [pid, worker] : workers_) CloseGuest(worker.get());
}

void WorkerPool::Refill() {
  size_t idle = workers_.size() - serving_;
  const size_t wanted =
      std::min<size_t>(config_.ready + queue_.size(),
                       config_.max_sessions - std::min<size_t>(serving_, config_.max_sessions));
  while (!draining_ && !pausing_ && idle < wanted && StartOne()) ++idle;
}

bool WorkerPool::StartOne() {
  Child child;
  std::string error;
  if (!StartChild(config_.program, config_.arguments, &child, &error)) {
    OnStartFailure(error, kItCannot);
    return false;
  }
  const auto worker = std::make_shared<Worker>(io_, child);
  worker->start_limit.async_wait([worker](const error_code& code) {
    if (code || worker->state != State::kStarting) return;
    worker->failure = "it did not get ready in time";
    kill(worker->pid, SIGKILL);
  });
  workers_[child.pid] = worker;
  WatchControl(worker);
  return true;
}

void WorkerPool::WatchControl(const std::shared_ptr<Worker>& worker) {
  worker->control.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                             [this, worker](const error_code& code) {
                               if (!code) OnControl(worker);
                             });
}

void WorkerPool::OnControl(const std::shared_ptr<Worker>& worker) {
  ControlMessage message;
  const ControlResult result =
      worker::ReceiveControl(worker->control.native_handle(), false, &message);
  if (result == ControlResult::kClosed) {
    // It has exited, or is about to be told to: without this socket it cannot serve.
    error_code ignored;
    worker->control.close(ignored);
    return;
  }
  if (result == ControlResult::kGot) OnMessage(worker, message);
  if (worker->control.is_open()) WatchControl(worker);
}

void WorkerPool::OnMessage(const std::shared_ptr<Worker>& worker, const ControlMessage& message) {
  if (message.fd >= 0) close(message.fd);  // workers have none to give
  if (message.header.type == ControlType::kTaken) CloseGuest(worker.get());
  if (worker->state != State::kStarting) return;
  if (message.header.type == ControlType::kReady) return OnReady(worker, message.text);
  if (message.header.type == ControlType::kFailed) worker->failure = message.text;
}

void WorkerPool::OnReady(const std::shared_ptr<Worker>& worker, const std::string& text) {
  worker->start_limit.cancel();
  worker->state = State::kReady;
  failures_ = 0;
  log::Debug("event=worker_ready worker={} {}", worker->pid, text);
  if (!std::exchange(ever_ready_, true)) events_.ready(text);
  if (queue_.empty()) return;
  Guest guest = std::move(queue_.front().guest);
  queue_.pop_front();
  Assign(worker, std::move(guest));
}

size_t WorkerPool::SessionsOf(const std::string& peer) const {
  const auto serving = std::ranges::count_if(workers_, [&](const auto& entry) {
    return entry.second->state == State::kServing && entry.second->peer == peer;
  });
  const auto waiting =
      std::ranges::count_if(queue_, [&](const Waiting& other) { return other.guest.peer == peer; });
  return static_cast<size_t>(serving + waiting);
}

std::shared_ptr<WorkerPool::Worker> WorkerPool::FindReady() const {
  for (const auto& [pid, worker] : workers_) {
    if (worker->state == State::kReady && worker->control.is_open()) return worker;
  }
  return nullptr;
}

void WorkerPool::Serve(Guest guest) {
  if (const auto worker = FindReady()) return Assign(worker, std::move(guest));
  Waiting& waiting = queue_.emplace_back();
  waiting.id = ++last_waiting_;
  waiting.guest = std::move(guest);
  waiting.limit = std::make_unique<boost::asio::steady_timer>(io_, kQueueLimit);
  waiting.limit->async_wait([this, id = waiting.id](const error_code& code) {
    if (code) return;
    const auto found = std::find_if(queue_.begin(), queue_.end(),
                                    [id](const Waiting& other) { return other.id == id; });
    if (found == queue_.end()) return;
    Guest late = std::move(found->guest);
    queue_.erase(found);
    events_.unserved(std::move(late));
  });
  Refill();
}

void WorkerPool::Assign(const std::shared_ptr<Worker>& worker, Guest guest) {
  ControlHeader header{.type = ControlType::kStart, .session = ++last_session_};
  const bool sent =
      MakeToken(header.token) &&
      worker::SendControl(worker->control.native_handle(), header, guest.hello, guest.fd, false);
  if (!sent) {
    // It has died this moment; another one takes the guest.
    error_code ignored;
    worker->control.close(ignored);
    return Serve(std::move(guest));
  }
  worker->state = State::kServing;
  worker->session = header.session;
  worker->token.assign(header.token, sizeof header.token);
  worker->from = guest.from;
  worker->peer = guest.peer;
  worker->guest = std::move(guest);
  worker->began = std::chrono::steady_clock::now();
  ++serving_;
  log::Info("event=session_started session={} worker={} {}", worker->session, worker->pid,
            worker->from);
  Refill();
}

// From then on only the worker holds the connection: it ends when the worker does.
void WorkerPool::CloseGuest(Worker* worker) {
  if (worker->guest.fd >= 0) close(std::exchange(worker->guest.fd, -1));
}

bool WorkerPool::PassCallback(const std::string& token, Guest guest) {
  bool found = false;
  for (const auto& [pid, worker] : workers_) {
    if (worker->state != State::kServing || worker->token != token) continue;
    found = worker->control.is_open() &&
            worker::SendControl(worker->control.native_handle(), {.type = ControlType::kCallback},
                                "", guest.fd, false);
    break;
  }
  if (found) close(guest.fd);
  return found;
}

void WorkerPool::Reap() {
  for (auto it = workers_.begin(); it != workers_.end();) {
    int status = 0;
    const auto worker = it->second;
    if (waitpid(worker->pid, &status, WNOHANG) != worker->pid) {
      ++it;
      continue;
    }
    it = workers_.erase(it);
    OnExit(worker, status);
    it = workers_.upper_bound(worker->pid);  // OnExit may have started others
  }
  Refill();
}

void WorkerPool::OnExit(const std::shared_ptr<Worker>& worker, int status) {
  // What it said last may not have been read yet.
  ControlMessage message;
  while (worker->control.is_open() && worker::ReceiveControl(worker->control.native_handle(), false,
                                                             &message) == ControlResult::kGot) {
    if (message.fd >= 0) close(message.fd);
    if (message.header.type == ControlType::kFailed) worker->failure = message.text;
    if (message.header.type == ControlType::kTaken) CloseGuest(worker.get());
  }
  worker->start_limit.cancel();
  worker->log->ReadRest();
  error_code ignored;
  worker->control.close(ignored);
  if (worker->state == State::kServing) {
    --serving_;
    if (worker->guest.fd >= 0) return ServeElsewhere(worker, status);
    const std::chrono::duration<double> lasted = std::chrono::steady_clock::now() - worker->began;
    log::At(status == 0 ? log::Level::kInfo : log::Level::kError,
            "event={} session={} worker={} {} seconds={:.3f}",
            status == 0 ? "session_ended" : "worker_crashed", worker->session, worker->pid,
            DescribeExit(status), lasted.count());
    return events_.ended();
  }
  if (draining_) return;
  if (worker->state == State::kReady) {
    log::Error("event=worker_lost worker={} {}", worker->pid, DescribeExit(status));
  }
  const bool was_killed =
      WIFSIGNALED(status) && (WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGTERM);
  OnStartFailure(
      worker->failure.empty() ? "the worker ended with " + DescribeExit(status) : worker->failure,
      was_killed && worker->failure.empty() ? kItWasKilled : kItCannot);
}

// It was dead, or dying, before the guest reached it, which the guest need never know.
void WorkerPool::ServeElsewhere(const std::shared_ptr<Worker>& worker, int status) {
  log::Error("event=worker_lost worker={} session={} {}", worker->pid, worker->session,
             DescribeExit(status));
  Guest guest = std::exchange(worker->guest, {});
  if (draining_) return events_.unserved(std::move(guest));
  Serve(std::move(guest));
}

// One that was killed, by a kernel out of memory for one, tells nothing about the next; one that
// cannot work, before any did, speaks for all.
void WorkerPool::OnStartFailure(const std::string& reason, StartFailure kind) {
  if (!ever_ready_ && (kind == kItCannot || failures_ >= kMostEarlyKills)) {
    draining_ = true;
    return events_.hopeless(reason);
  }
  log::Error("event=worker_failed reason={}", log::Quote(reason));
  if (pausing_) return;
  pausing_ = true;
  pause_.expires_after(kFirstPause * (1u << std::min(failures_++, kMostDoublings)));
  pause_.async_wait([this](const error_code& code) {
    if (code) return;
    pausing_ = false;
    Refill();
  });
}

void WorkerPool::Drain() {
  draining_ = true;
  pause_.cancel();
  for (const auto& [pid, worker] : workers_) {
    if (worker->state != State::kServing) kill(pid, SIGKILL);
  }
  while (!queue_.empty()) {
    Guest guest = std::move(queue_.front().guest);
    queue_.pop_front();
    events_.unserved(std::move(guest));
  }
}

void WorkerPool::KillAll() {
  for (const auto& [pid, worker] : workers_) kill(pid, SIGKILL);
}

}  // namespace smolvm::server
