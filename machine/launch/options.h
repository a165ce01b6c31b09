// The command line of `smolvm machine`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "machine/image/expansion.h"

namespace smolvm::machine {

struct Options {
  std::string verb;  // run, exec, list, stop, delete, prune, accelerator, supervise
  // run
  std::string image;  // "": the default image
  bool cuda = false, net = false, detach = false;
  std::optional<uint32_t> memory_mib;
  uint32_t cpus = 0;                                // 0: the default
  uint32_t ready_timeout_s = 0;                     // 0: the default
  std::string accelerator;                          // auto, kvm or tcg; "": $SMOLVM_ACCELERATOR
  uint64_t image_limit = Expansion::kDefaultLimit;  // bytes
  std::vector<std::string> volumes;
  // run and exec
  std::vector<std::string> env;  // KEY=VALUE
  std::string workdir;
  bool interactive = false, tty = false;
  uint64_t timeout_ms = 0;  // 0: none
  std::vector<std::string> command;
  std::string name;  // run: the new machine's; "": one is made up
  // exec (one), stop, delete, prune (one or more), list (any number): as arguments or by --name
  std::vector<std::string> names;
  // list, accelerator, stop, delete, prune
  bool json = false, retry = false, force = false, cascade = false, all = false;
  // supervise (not for users)
  std::string record;
  int owner_fd = -1, lock_fd = -1;
};

// The command line asked for help, or was wrong: print `text` and end.
struct ParseEnd {
  std::string text;
  int status;
};

// argv[0] is "machine". Throws ParseEnd, or Failure for a value that is wrong.
Options ParseOptions(int argc, const char* const* argv);

// "30s", "5m", "1h", "250ms" or a bare number of seconds, in milliseconds. Throws Failure.
uint64_t ParseDuration(const std::string& text);
// KEY=VALUE as it is; KEY alone takes the launcher's own value. Throws Failure.
std::string ParseEnv(const std::string& text);

}  // namespace smolvm::machine
