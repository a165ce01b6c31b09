// Reads vhost-user messages from, and writes replies to, a non-blocking Unix socket.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "host-daemon/vsock/vhost_user.h"

namespace smolvm::vsock {

// Gathers a message however it is cut into pieces. Memory and descriptors held are bounded by one
// message; a message that claims to be larger than any we know ends the connection.
class MessageReader {
 public:
  enum class Result { kMessage, kNothingYet, kClosed, kError };
  // Reads from `socket` what is there, up to the end of one message.
  Result Read(int socket, VhostUserMessage* message, std::string* error);

 private:
  Result Receive(int socket, uint8_t* to, size_t want, size_t* have, std::string* error);

  uint8_t header_[12] = {};
  size_t header_have_ = 0;
  size_t payload_have_ = 0;
  std::vector<uint8_t> payload_;
  std::vector<UniqueFd> fds_;
};

// Sends the reply to `request`. False if the front end does not take it at once: its socket holds
// far more than the replies it may be waiting for.
bool SendReply(int socket, uint32_t request, const std::vector<uint8_t>& payload);

}  // namespace smolvm::vsock
