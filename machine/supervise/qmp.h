// Whether QEMU has stopped a machine's processors, which it does for good when the accelerator
// fails it. Asked over QMP, QEMU's control protocol (docs/interop/qmp-spec.rst of QEMU).
#pragma once

#include <filesystem>
#include <string>

#include "protocol/base/unique_fd.h"

namespace smolvm::machine {

inline constexpr char kQmpSocket[] = "qmp.sock";

class QmpWatch {
 public:
  // `folder`: where QEMU listens at kQmpSocket, now or later.
  explicit QmpWatch(std::filesystem::path folder) : folder_(std::move(folder)) {}

  // QEMU's word for it ("internal-error", "io-error", ...); "" while the machine runs, or as long
  // as QEMU does not say. Never waits.
  std::string Stopped();

 private:
  void Connect();
  void Ask(const char* command);
  void Take(const std::string& line);

  const std::filesystem::path folder_;
  UniqueFd socket_;
  std::string pending_, stopped_;
};

}  // namespace smolvm::machine
