// Stands between a guest and the daemon and changes what they say of themselves.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "protocol/api/session.wire.h"

namespace smolvm::remoting {

struct Changes {
  std::function<void(api::Hello&)> hello;
  std::function<void(api::HelloReply&)> reply;
};

// Lifetime: serves until destroyed; guests must have ended by then.
class Proxy {
 public:
  Proxy(const std::string& listen, const std::string& upstream, Changes changes);
  ~Proxy();

 private:
  void Serve();
  void Relay(int guest);

  int listener_;
  std::string upstream_;
  Changes changes_;
  std::thread thread_;
};

}  // namespace smolvm::remoting
