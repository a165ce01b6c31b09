// Programs under test, the daemon among them.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

namespace smolvm::remoting {

// A folder for sockets and logs, removed at the end.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string Contents(const std::string& file);

// Lifetime: a process that still runs at the end is killed.
class Process {
 public:
  // `environment`: NAME=VALUE, added to (or replacing in) the test's own; NAME alone unsets.
  Process(const std::vector<std::string>& arguments, const std::vector<std::string>& environment);
  ~Process();
  Process(const Process&) = delete;

  // Reads its output (stdout and stderr) until `text` has come; false when it ends before, or the
  // time is up.
  bool Await(const std::string& text, double seconds = 30);
  void CloseInput();
  // The exit status, 128 + signal, or -1 when it does not end in time.
  int Wait(double seconds = 60);
  void Kill(int signal);
  pid_t pid() const { return pid_; }
  const std::string& output() const { return output_; }

 private:
  bool ReadMore(double seconds);

  pid_t pid_ = -1;
  int input_ = -1, from_ = -1, status_ = -1;
  bool ended_ = false;
  std::string output_;
};

class Daemon {
 public:
  explicit Daemon(const std::vector<std::string>& options = {});
  ~Daemon();
  const std::string& socket() const { return socket_; }
  std::string log() const { return Contents(log_); }
  // How often `text` is in the log, once it is there `count` times or a while has passed: what a
  // worker writes comes there through the daemon.
  size_t AwaitLog(const std::string& text, size_t count) const;
  Process& process() { return *process_; }
  // Worker processes that serve or wait.
  std::vector<pid_t> Workers() const;
  // Workers that have been ready so far.
  int ReadyWorkers() const;
  // The worker of the session that began last; -1 when there was none.
  pid_t LastWorker() const;
  // Until a session has ended for `worker`; false when the time is up.
  static bool AwaitEnd(pid_t worker, double seconds);

 private:
  Folder folder_;
  std::string socket_, log_;
  std::unique_ptr<Process> process_;
};

// remoting_guest COMMAND…, with what a guest's environment says.
std::unique_ptr<Process> StartGuest(const std::string& socket,
                                    const std::vector<std::string>& command,
                                    std::vector<std::string> environment = {});

double Now();

}  // namespace smolvm::remoting
