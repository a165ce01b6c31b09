// The payloads that have more than one field, and the agent's configuration.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "machine/wire/frame.h"

namespace smolvm::machine {

// What a connection from the guest is for. The secret is known only to the agent (it is in the
// initramfs, which no program in the guest can see), so a program cannot pose as it.
struct Hello {
  std::string secret;
  std::string kind;      // "control", "exec" or "share"
  std::string argument;  // exec: the token; share: the index
};
std::string EncodeHello(const Hello& hello);
std::optional<Hello> DecodeHello(std::string_view payload);

struct ExecRequest {
  std::vector<std::string> argv;
  std::vector<std::string> env;  // KEY=VALUE, complete
  std::string workdir;
  std::string user;  // "", a name or a number, each with :group or without
  bool stdin_open = false;
  bool tty = false;
  bool make_workdir = false;  // when it does not exist
  uint32_t rows = 0;
  uint32_t columns = 0;
};
std::string EncodeExec(const ExecRequest& request);
std::optional<ExecRequest> DecodeExec(std::string_view payload);

enum class ExitKind : uint32_t { kExited = 0, kSignalled = 1, kCannotRun = 2, kNotFound = 3 };
struct ExitReport {
  ExitKind kind = ExitKind::kExited;
  uint32_t value = 0;   // exit status or signal number
  std::string message;  // why the command cannot be run, or a hint about how it failed
};
std::string EncodeExit(const ExitReport& report);
std::optional<ExitReport> DecodeExit(std::string_view payload);

// In the machine: where the CUDA library of its programs writes errors (SMOLVM_CUDA_LOG_FILE).
inline constexpr char kGuestCudaLog[] = "/run/smolvm-cuda.log";

// What the launcher tells the agent before it boots, as JSON in /smolvm/config of the initramfs.
struct GuestShare {
  std::string path;  // in the guest
  bool read_only = false;
  bool is_file = false;
};
struct GuestConfig {
  std::string secret;
  uint32_t port = 0;  // of the host's vsock, for every connection of the agent
  std::string hostname;
  bool net = false;
  bool persistent = false;  // the second disk holds the changes
  bool cuda = false;        // /smolvm/cuda goes to /opt/smolvm-cuda
  std::vector<GuestShare> shares;
  std::vector<std::string> modules;  // file names under /smolvm/modules, in the order to load them
};
std::string EncodeConfig(const GuestConfig& config);
// Throws std::exception when the text is not a configuration.
GuestConfig DecodeConfig(const std::string& text);

}  // namespace smolvm::machine
