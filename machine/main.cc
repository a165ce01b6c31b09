// The `smolvm` command: `smolvm machine …` runs microVMs, `smolvm gpu …` passes GPUs to podman
// containers.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "container/command.h"
#include "machine/command.h"
#include "machine/version.h"

namespace {

constexpr int kOwnError = 125;  // as podman's and docker's

constexpr char kUsage[] =
    "usage: smolvm COMMAND …\n"
    "\n"
    "  machine   run microVMs, with CUDA inside (smolvm machine --help)\n"
    "  gpu       hand host GPUs to podman containers (smolvm gpu --help)\n"
    "\n"
    "  --version print the version\n"
    "  --help    print this text\n";

int Run(int argc, char** argv) {
  const std::string_view command = argc > 1 ? argv[1] : "";
  if (command == "machine") return smolvm::machine::RunCommand(argc - 1, argv + 1);
  if (command == "gpu") return smolvm::gpu::RunCommand(argc - 1, argv + 1);
  if (command == "--version" || command == "-V") {
    std::printf("smolvm %s\n", smolvm::kVersion);
    return 0;
  }
  if (command == "--help" || command == "-h" || command == "help") {
    std::fputs(kUsage, stdout);
    return 0;
  }
  if (command.empty()) {
    std::fputs(kUsage, stderr);
  } else {
    std::fprintf(stderr, "smolvm: unknown command '%s'; 'smolvm --help' lists them\n", argv[1]);
  }
  return kOwnError;
}

}  // namespace

// What was printed has arrived, or the status says that it has not: a full disk is no success.
int main(int argc, char** argv) {
  const int status = Run(argc, argv);
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
  std::fprintf(stderr, "smolvm: standard output cannot be written: %s\n", std::strerror(errno));
  return status != 0 ? status : kOwnError;
}
