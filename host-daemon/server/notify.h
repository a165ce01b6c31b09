// Readiness for a service manager: the datagram protocol of sd_notify(3).
#pragma once

#include <string_view>

namespace smolvm::server {

// Sends "READY=1" and the like to $NOTIFY_SOCKET; nothing happens where that is unset.
void NotifyManager(std::string_view state);

}  // namespace smolvm::server
