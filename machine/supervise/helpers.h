// The processes of one machine: CUDA daemon, vsock device, QEMU. They are killed when the
// supervisor ends, however it ends.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "machine/guest/qemu.h"
#include "machine/state/record.h"

namespace smolvm::machine {

// Files in a machine's folder.
inline constexpr char kControlSocket[] = "control.sock";
inline constexpr char kAgentSocket[] = "agent.sock";
inline constexpr char kVsockSocket[] = "vsock.sock";
inline constexpr char kCudaSocket[] = "cuda.sock";
inline constexpr char kInitramfs[] = "initramfs";
inline constexpr char kChangesDisk[] = "changes.ext4";
inline constexpr char kConsoleLog[] = "console.log";
// Why a kept machine ended that nobody had asked to; until it is started again.
inline constexpr char kFailedFile[] = "failed";
inline constexpr char kOutputLog[] = "output.log";

class Helpers {
 public:
  // `lock`: the machine's. QEMU holds it too, so that a machine whose supervisor was killed does
  // not count as stopped while its disk may still be written.
  Helpers(const MachineRecord& record, std::filesystem::path folder, HostAbilities host,
          unsigned cid, int lock)
      : record_(record), folder_(std::move(folder)), host_(host), cid_(cid), lock_(lock) {}
  ~Helpers() { StopAll(); }

  void StartCudaDaemon();
  // The same after it died; its log is kept as cuda-daemon.log.old.
  void RestartCudaDaemon();
  bool CudaDaemonServes() const;
  void StartVsockDevice();
  void StartQemu();
  // Both listen (where they are used at all), so QEMU may be started.
  bool ReadyForQemu() const;

  // Collects one dead child. The text says which helper ended and why, with its last log line;
  // empty for a process that is none of ours.
  struct Death {
    pid_t pid;
    bool qemu = false;
    bool daemon = false;
    bool known = false;
    std::string message;
  };
  std::optional<Death> Collect();
  void StopAll();
  bool QemuRuns() const;
  // The end of what QEMU said.
  std::string QemuLog() const;

 private:
  struct Helper {
    std::string name, log;
    pid_t pid;
  };
  void Start(const std::string& name, const std::vector<std::string>& argv);
  // A socket's path for another program's command line: they all run in the machine's folder, so a
  // long path can be left out.
  std::string SocketPath(const char* name) const;

  const MachineRecord& record_;
  const std::filesystem::path folder_;
  const HostAbilities host_;
  const unsigned cid_;
  const int lock_;
  std::vector<Helper> helpers_;
};

}  // namespace smolvm::machine
