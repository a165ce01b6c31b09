#include "container/actions.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <system_error>

#include "container/cuda_devices.h"
#include "container/explain.h"
#include "container/gpu.h"
#include "container/launch.h"

namespace smolvm::gpu {
namespace {

// podman's exit statuses for failures of its own or of the OCI runtime (podman-run(1)); every other
// status is the container's.
bool IsPodmanFailure(int status) { return status >= 125 && status <= 127; }

// False when stdout cannot take it (a full disk, a closed pipe).
bool Print(const std::string& text) {
  const bool written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (!written) std::perror("smolvm gpu: cannot write to stdout");
  return written;
}

std::string Absolute(const std::string& path) {
  return path.empty() ? path : std::filesystem::absolute(path).lexically_normal().string();
}

// What stdin holds, up to what is kept of a failure: its end.
std::string ReadStdin() {
  std::string text;
  char block[16 * 1024];
  while (const std::size_t n = std::fread(block, 1, sizeof(block), stdin)) {
    text.append(block, n);
    if (text.size() > kKeptStderr) text.erase(0, text.size() - kKeptStderr);
  }
  return text;
}

void WriteWhole(int fd, const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw std::system_error(errno, std::generic_category());
    done += static_cast<std::size_t>(n);
  }
}

// Replaces `file` in one step, so that podman never reads half a spec. The temporary's extension is
// none that CDI reads.
void ReplaceFile(const std::string& file, const std::string& text) {
  std::string temporary = file + ".XXXXXX";
  const int fd = mkstemp(temporary.data());
  if (fd < 0) throw std::system_error(errno, std::generic_category(), "cannot write " + file);
  try {
    WriteWhole(fd, text);
    if (fchmod(fd, 0644) != 0 || fsync(fd) != 0 ||
        std::rename(temporary.c_str(), file.c_str()) != 0) {
      throw std::system_error(errno, std::generic_category());
    }
    close(fd);
  } catch (const std::system_error& error) {
    close(fd);
    unlink(temporary.c_str());
    throw std::system_error(error.code(), "cannot write " + file);
  }
}

}  // namespace

Host HostOptions::ToHost() const {
  const char* named = std::getenv("SMOLVM_PODMAN");
  Host host;
  host.root = HostRoot(Absolute(root));
  if (named != nullptr && *named != '\0') host.podman.program = named;
  if (!podman.empty()) host.podman.program = podman;
  host.podman.global_options = podman_options;
  return host;
}

Remoting GrantOptions::ToRemoting(const Host& host) const {
  Remoting remoting;
  if (!selector.empty()) remoting.devices = normalize_gpus(std::span(selector));
  if (remoting.devices.off()) return remoting;
  CudaDevicesOf(remoting.devices);  // a selector that cannot be served fails first
  remoting.library_folder = Absolute(FindLibraryFolder(library, host.root, OwnProgramFolder()));
  remoting.socket = Absolute(FindDaemonSocket(socket, host.root));
  remoting.more_library_path = more_library_path;
  CheckRemoting(remoting, host.root);
  return remoting;
}

std::vector<std::string> GrantOptions::ToArgs(const Host& host) const {
  if (remote) return RemoteRunArgs(ToRemoting(host));
  return gpu_run_args(normalize_gpus(std::span(selector)), host);
}

int PrintDetected(const Host& host, bool json) {
  return Print(FormatDetected(DetectGpus(host), json)) ? 0 : kExitFailed;
}

int PrintRunArgs(const Host& host, const GrantOptions& grant, ArgsFormat format) {
  return Print(FormatArgs(grant.ToArgs(host), format)) ? 0 : kExitFailed;
}

int PrintAvailable(const Host& host) {
  const bool available = check_gpu_available(host);
  const char* answer = available ? "nvidia.com/gpu is declared by a CDI spec\n"
                                 : "no CDI spec declares nvidia.com/gpu\n";
  if (!Print(answer)) return kExitFailed;
  return available ? 0 : kExitNo;
}

int ExplainStdin(const Host& host) {
  const std::optional<std::string> hint = ExplainLaunchError(ReadStdin(), host);
  if (!hint) {
    std::fputs("smolvm gpu: this does not look like a GPU matter\n", stderr);
    return kExitNo;
  }
  return Print(*hint + "\n") ? 0 : kExitFailed;
}

int RunPodman(const Host& host, const GrantOptions& grant,
              const std::vector<std::string>& podman_args) {
  std::vector<std::string> argv = host.podman.CommandLine();
  argv.push_back("run");
  const std::vector<std::string> passed = grant.ToArgs(host);
  argv.insert(argv.end(), passed.begin(), passed.end());
  argv.insert(argv.end(), podman_args.begin(), podman_args.end());
  const LaunchResult result = LaunchAndWatch(argv);
  if (IsPodmanFailure(result.status)) {
    // podman's own words have been passed on already.
    if (const auto hint = ExplainLaunchError(result.last_stderr, host, passed)) {
      std::fprintf(stderr, "\nsmolvm gpu: the container did not start (GPU misconfiguration)\n%s\n",
                   hint->c_str());
    }
  }
  return result.status;
}

int WriteCdiSpec(const Host& host, const GrantOptions& grant, const std::string& output) {
  const Remoting remoting = grant.ToRemoting(host);
  if (remoting.devices.off()) {
    throw std::invalid_argument(
        "a CDI spec without devices is of no use: name 'all', 'nvidia' or "
        "indices such as 'nvidia:0'");
  }
  const std::string spec = RemoteCdiSpec(remoting);
  if (output.empty() || output == "-") return Print(spec) ? 0 : kExitFailed;
  ReplaceFile(output, spec);
  return 0;
}

}  // namespace smolvm::gpu
