#include "container/remote.h"

#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "container/cuda_devices.h"
#include "container/error.h"
#include "container/text.h"

namespace smolvm::gpu {
namespace {

constexpr std::string_view kDaemonHint =
    "Start the daemon with `smolvm-cuda-daemon --listen unix:PATH` and name PATH with --socket or "
    "$SMOLVM_CUDA_SOCKET.";
constexpr std::string_view kLibraryHint =
    "Name the folder that holds smolvm-cuda's libcuda.so.1 with --library or "
    "$SMOLVM_CUDA_LIBRARIES.";

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool HoldsLibrary(const HostRoot& root, const std::string& folder) {
  return root.Look(folder + "/libcuda.so.1") == HostRoot::Entry::kFile;
}

// podman reads --mount as comma-separated values, and a CDI spec must be UTF-8 text.
void CheckMountable(const std::string& path, std::string_view hint) {
  const bool control = path.find_first_of(std::string_view("\0\n\r\t", 4)) != std::string::npos;
  if (path.empty() || path.front() != '/' || control || path.find_first_of(",\"") != path.npos ||
      ReplaceInvalidUtf8(path) != path) {
    throw GpuConfigError("the path " + QuoteForMessage(path) +
                             " cannot be mounted: it must be absolute, UTF-8, and without commas, "
                             "quotes and control characters",
                         hint);
  }
}

std::vector<std::string> Variables(const Remoting& remoting) {
  std::string library_path = kGuestLibraryFolder;
  if (!remoting.more_library_path.empty()) library_path += ":" + remoting.more_library_path;
  std::vector<std::string> variables = {
      std::string("SMOLVM_CUDA_ENDPOINT=unix:") + kGuestSocket,
      "LD_LIBRARY_PATH=" + library_path,
  };
  if (const CudaDevices devices = CudaDevicesOf(remoting.devices)) {
    variables.push_back("CUDA_VISIBLE_DEVICES=" + JoinIndices(*devices));
  }
  return variables;
}

}  // namespace

std::string FindLibraryFolder(const std::string& explicit_folder, const HostRoot& root,
                              const std::string& program_folder) {
  if (!explicit_folder.empty()) return explicit_folder;
  if (std::string named = Environment("SMOLVM_CUDA_LIBRARIES"); !named.empty()) return named;
  std::vector<std::string> folders;
  if (!program_folder.empty()) {
    const std::string prefix = program_folder.substr(0, program_folder.rfind('/'));
    // A folder with nothing else in it: all of it is mounted. In a build tree too.
    folders.push_back(prefix + "/lib/smolvm-cuda");
  }
  folders.push_back(kGuestLibraryFolder);
  folders.push_back("/usr/lib/smolvm-cuda");
  for (const std::string& folder : folders) {
    if (HoldsLibrary(root, folder)) return folder;
  }
  throw GpuConfigError(
      "no folder with the guest's libcuda.so.1 (looked in " + Join(folders, ", ") + ")",
      kLibraryHint);
}

std::string FindDaemonSocket(const std::string& explicit_path, const HostRoot& root) {
  if (!explicit_path.empty()) return explicit_path;
  if (std::string named = Environment("SMOLVM_CUDA_SOCKET"); !named.empty()) return named;
  const std::string endpoint = Environment("SMOLVM_CUDA_ENDPOINT");
  constexpr std::string_view kUnix = "unix:";
  if (endpoint.starts_with(kUnix)) return endpoint.substr(kUnix.size());
  std::vector<std::string> paths;
  const std::string runtime = Environment("XDG_RUNTIME_DIR");
  if (!runtime.empty()) paths.push_back(runtime + "/smolvm-cuda/daemon.sock");
  paths.push_back(kGuestSocket);
  for (const std::string& path : paths) {
    if (root.Exists(path)) return path;
  }
  throw GpuConfigError("no daemon to use: its socket is not at " + Join(paths, " or "),
                       kDaemonHint);
}

void CheckRemoting(const Remoting& remoting, const HostRoot& root) {
  CudaDevicesOf(remoting.devices);
  CheckMountable(remoting.library_folder, kLibraryHint);
  CheckMountable(remoting.socket, kDaemonHint);
  if (!HoldsLibrary(root, remoting.library_folder)) {
    throw GpuConfigError(remoting.library_folder + " holds no libcuda.so.1", kLibraryHint);
  }
  const HostRoot::Entry entry = root.Look(remoting.socket);
  if (entry != HostRoot::Entry::kSocket) {
    throw GpuConfigError(
        remoting.socket +
            (entry == HostRoot::Entry::kMissing ? " does not exist" : " is not a Unix socket"),
        kDaemonHint);
  }
}

std::vector<std::string> RemoteRunArgs(const Remoting& remoting) {
  if (remoting.devices.off()) return {};
  std::vector<std::string> words = {
      "--mount",
      "type=bind,source=" + remoting.library_folder + ",destination=" + kGuestLibraryFolder +
          ",ro=true",
      "--mount",
      // Not read-only: to connect one needs write permission on the socket.
      "type=bind,source=" + remoting.socket + ",destination=" + kGuestSocket,
  };
  for (std::string& variable : Variables(remoting)) {
    words.push_back("-e");
    words.push_back(std::move(variable));
  }
  return words;
}

std::string RemoteCdiSpec(const Remoting& remoting) {
  using nlohmann::ordered_json;
  const ordered_json libraries = {{"hostPath", remoting.library_folder},
                                  {"containerPath", kGuestLibraryFolder},
                                  {"options", {"ro", "nosuid", "nodev", "bind"}}};
  const ordered_json socket = {{"hostPath", remoting.socket},
                               {"containerPath", kGuestSocket},
                               {"options", {"rw", "nosuid", "nodev", "noexec", "bind"}}};
  const ordered_json edits = {{"env", Variables(remoting)},
                              {"mounts", ordered_json::array({libraries, socket})}};
  const ordered_json device = {{"name", kRemotingDevice}, {"containerEdits", edits}};
  const ordered_json spec = {
      {"cdiVersion", "0.5.0"}, {"kind", kRemotingKind}, {"devices", ordered_json::array({device})}};
  return spec.dump(2) + "\n";
}

std::string OwnProgramFolder() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
  if (length <= 0 || length == static_cast<ssize_t>(sizeof(path))) return "";
  const std::string program(path, static_cast<std::size_t>(length));
  return program.substr(0, program.rfind('/'));
}

}  // namespace smolvm::gpu
