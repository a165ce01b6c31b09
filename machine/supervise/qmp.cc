#include "machine/supervise/qmp.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "machine/supervise/message.h"

namespace smolvm::machine {
namespace {

// An answer has a few hundred bytes; more than this is no QMP.
constexpr size_t kMaxLine = 1 << 20;
// States in which the processors run, did not run yet, or ended in order.
constexpr std::string_view kFine[] = {"running", "prelaunch", "shutdown", "suspended"};

}  // namespace

std::string QmpWatch::Stopped() {
  if (!socket_.valid()) Connect();
  char buffer[4096];
  ssize_t n = 0;
  while (socket_.valid() && (n = recv(socket_.get(), buffer, sizeof buffer, MSG_DONTWAIT)) > 0) {
    pending_.append(buffer, n);
    for (size_t end; (end = pending_.find('\n')) != std::string::npos;) {
      Take(pending_.substr(0, end));
      pending_.erase(0, end + 1);
    }
    if (pending_.size() > kMaxLine) pending_.clear();
  }
  return stopped_;
}

void QmpWatch::Connect() {
  socket_ = ConnectIn(folder_, kQmpSocket, SOCK_STREAM);
  if (!socket_.valid()) return;
  Ask("qmp_capabilities");
  Ask("query-status");
}

void QmpWatch::Ask(const char* command) {
  const std::string line = fmt::format("{{\"execute\": \"{}\"}}\n", command);
  send(socket_.get(), line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void QmpWatch::Take(const std::string& line) {
  const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object()) return;
  if (json.value("event", nlohmann::json()) == "STOP") return Ask("query-status");
  const nlohmann::json answer = json.value("return", nlohmann::json());
  if (!answer.is_object() || !answer.contains("status") || !answer["status"].is_string()) return;
  const std::string status = answer["status"];
  const bool fine = std::find(std::begin(kFine), std::end(kFine), status) != std::end(kFine);
  stopped_ = fine ? "" : status;
}

}  // namespace smolvm::machine
