// Connecting to the daemon and the first exchange.
#pragma once

#include <cuda.h>

#include <memory>
#include <string>

#include "protocol/api/session.wire.h"
#include "protocol/transport/channel.h"

namespace smolvm::guest {

// Within Session::kConnectTimeoutMs for the connection and as much for the answer; where a daemon
// seems to be starting again, which hello.cc explains, up to two seconds later.
// `callback_token`: empty for a new session, else the token of the session whose host functions
// this connection will run. Null with a CUresult (CUDA_ERROR_NO_DEVICE when there is no daemon) and
// one line in the log.
std::unique_ptr<transport::Channel> OpenChannel(const std::string& callback_token,
                                                api::HelloReply* reply, CUresult* result);

}  // namespace smolvm::guest
