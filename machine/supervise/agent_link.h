// The host's end of the agent: listens, checks each connection's hello, keeps the control
// connection.
//
// Everything that arrives is the guest's: bounded, and of no effect without the machine's secret.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "machine/wire/channel.h"
#include "machine/wire/messages.h"

namespace smolvm::machine {

class AgentLink {
 public:
  struct Handlers {
    std::function<void()> ready;
    std::function<void(const std::string&)> failed;
    std::function<void(size_t index, UniqueFd)> share;  // raw FUSE from here on
    std::function<void()> lost;                         // the control connection ended
  };
  using OnExec = std::function<void(UniqueFd)>;

  // `listener`: a listening Unix or vsock socket. `cid`: with vsock, the only peer that may
  // connect.
  AgentLink(UniqueFd listener, unsigned cid, std::string secret, Handlers handlers);

  // Asks the agent for a connection for one command. Neither this nor PowerOff waits for a guest
  // that does not read; such a one is lost.
  void OpenExec(OnExec done);
  void PowerOff();
  bool connected() const { return control_ != nullptr; }

  // For the poll loop. `Handle` takes the same entries back, in the same order.
  void AddTo(std::vector<pollfd>* fds) const;
  void Handle(const pollfd* fds);

 private:
  void Accept();
  // What a new connection sent; false when it is to be closed.
  bool Greet(std::unique_ptr<Channel>* channel);
  bool Admit(const Hello& hello, std::unique_ptr<Channel>* channel);
  void HandleControl();
  void Tell(FrameType type, const std::string& payload);

  UniqueFd listener_;
  const unsigned cid_;
  const std::string secret_;
  const Handlers handlers_;
  std::unique_ptr<Channel> control_;
  std::list<std::unique_ptr<Channel>> strangers_;  // no hello yet
  std::map<std::string, OnExec> expected_;         // by token
};

}  // namespace smolvm::machine
