// Messages between the launcher and a machine's supervisor: one JSON object per packet of a Unix
// SOCK_SEQPACKET socket, with a descriptor attached or not.
//
//   to the supervisor    {"op": "exec"}     asks for a connection to the agent
//                        {"op": "release"}  the owner goes, the machine stays
//                        {"op": "stop"}     power off in order
//                        {"op": "kill"}     end at once
//   from the supervisor  {"event": "starting"}, {"event": "ready"} or {"event": "stopping"}: what
//   the
//                        machine is doing, at once to each new client and at each change,
//                        {"event": "exec"} with a descriptor,
//                        {"event": "note", "message": ...}, {"event": "failed", "message": ...}
//                        with "kvm": true when KVM is to blame,
//                        {"event": "ended", "message": ...}
// The socket closes when everything of the machine is gone and its lock is free; earlier when the
// supervisor was killed.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "protocol/base/unique_fd.h"

namespace smolvm::machine {

struct Message {
  nlohmann::json json;
  UniqueFd fd;

  // The string member, or "".
  std::string Text(const char* key) const;
};

// False when the peer is gone (or does not take its messages).
bool SendMessage(int socket, const nlohmann::json& json, int fd = -1);
// Waits for one. Nothing when the peer is gone; malformed ones are skipped.
std::optional<Message> ReceiveMessage(int socket);
// Waits up to `timeout_ms`; `timed_out` tells the two reasons for nothing apart. A signal ends the
// wait like a time-out.
std::optional<Message> ReceiveMessage(int socket, int timeout_ms, bool* timed_out);

// A listening control socket in `folder`, and a connection to it; paths of any length work.
UniqueFd ListenIn(const std::string& folder, const std::string& name, int type);
UniqueFd ConnectIn(const std::string& folder, const std::string& name, int type);

}  // namespace smolvm::machine
