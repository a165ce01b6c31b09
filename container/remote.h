#pragma once

#include <string>
#include <vector>

#include "container/host_root.h"
#include "container/selector.h"

namespace smolvm::gpu {

// Remoting: a container without any GPU uses the CUDA devices of a smolvm-cuda-daemon on the host.
// It gets the guest's libraries, the daemon's Unix socket and the variables that lead to both.
struct Remoting {
  std::string library_folder;  // on the host; holds libcuda.so.1
  std::string socket;          // on the host; the daemon's `--listen unix:PATH`
  // Appended to the container's LD_LIBRARY_PATH, which replaces the image's own.
  std::string more_library_path;
  // Which of the daemon's devices the container's programs see. Off grants nothing at all. What a
  // container may use at most is for the daemon's own --gpus to say.
  GpuSelector devices = GpuSelector::All();
};

// Where the container finds them.
inline constexpr char kGuestLibraryFolder[] = "/opt/smolvm-cuda";
inline constexpr char kGuestSocket[] = "/run/smolvm-cuda/daemon.sock";

// The CDI name of the same, once `smolvm gpu cdi-spec` has been written to /etc/cdi:
// --device smolvm.dev/cuda=all.
inline constexpr char kRemotingKind[] = "smolvm.dev/cuda";
inline constexpr char kRemotingDevice[] = "all";

// The libraries' folder on the host: `explicit_folder` when it is not empty, else
// $SMOLVM_CUDA_LIBRARIES, else the first that holds libcuda.so.1 of: lib/smolvm-cuda beside the
// program's own folder, /opt/smolvm-cuda, /usr/lib/smolvm-cuda.
// Throws GpuConfigError when there is none.
std::string FindLibraryFolder(const std::string& explicit_folder, const HostRoot& root,
                              const std::string& program_folder);

// The daemon's socket: `explicit_path` when it is not empty, else $SMOLVM_CUDA_SOCKET, else the
// path in $SMOLVM_CUDA_ENDPOINT when that is unix:PATH, else the first that exists of
// $XDG_RUNTIME_DIR/smolvm-cuda/daemon.sock and /run/smolvm-cuda/daemon.sock.
// Throws GpuConfigError when there is none.
std::string FindDaemonSocket(const std::string& explicit_path, const HostRoot& root);

// Throws GpuConfigError when the folder has no libcuda.so.1, when the socket is none, or when a
// path cannot be written into podman's --mount; std::invalid_argument when `devices` names another
// vendor than NVIDIA.
void CheckRemoting(const Remoting& remoting, const HostRoot& root);

// The `podman run` arguments, as words.
std::vector<std::string> RemoteRunArgs(const Remoting& remoting);

// The CDI 0.5.0 spec (JSON, with a final newline) that says the same to podman, containerd or
// Kubernetes. 0.5.0, because older podman calls devices of newer specs unresolvable.
std::string RemoteCdiSpec(const Remoting& remoting);

// Where this program lies, for FindLibraryFolder; "" when the kernel does not tell.
std::string OwnProgramFolder();

}  // namespace smolvm::gpu
