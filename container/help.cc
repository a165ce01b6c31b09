#include "container/help.h"

namespace smolvm::gpu {

const char kSummary[] = "Hand the host's NVIDIA, AMD and Intel GPUs to podman containers.";

const char kOverviewHelp[] = R"(
A SELECTOR says which GPUs:
  all               those of every vendor that this host can pass
  nvidia, amd, intel   all of one vendor's
  nvidia:0          one of them
  nvidia:0,amd      several, separated by commas
  (empty)           none

HOW EACH VENDOR'S GPUS ARE PASSED
  A CDI spec that declares nvidia.com/gpu, amd.com/gpu or intel.com/gpu comes
  first; the vendor's tool owns the numbers then. Without one:
  nvidia  the Container Toolkit's OCI hook, else every /dev/nvidia* node, for
          images that bring the driver's libraries along
  amd     /dev/kfd and AMD's render nodes, never the whole /dev/dri
  intel   Intel's render nodes
  and N counts the vendor's devices in PCI bus order (a warning says so).

EXAMPLES
  smolvm gpu run all -- --rm docker.io/nvidia/cuda nvidia-smi
  podman run --rm $(smolvm gpu run-args nvidia:0,amd) IMAGE
  podman run --rm $(smolvm gpu run-args --remote) IMAGE

ENVIRONMENT
  SMOLVM_PODMAN           the podman to use
  SMOLVM_CUDA_LIBRARIES   the guest's libraries on this host (--remote)
  SMOLVM_CUDA_SOCKET      the daemon's socket (--remote)

FILES
  /etc/cdi, /var/run/cdi  CDI specs, where podman names no others

EXIT STATUS
  0 done; 1 the answer is no (check, explain); 125 a failure, explained on
  stderr; `run` passes podman's status on.

docs/containers.md describes what each vendor needs.)";

const char kDetectHelp[] = R"(
Prints one line for each vendor whose GPUs this host can pass now: by which
mechanism (cdi, hook, raw), and the PCI addresses in index order. With cdi the
numbers belong to the vendor's spec, and the addresses are for information.

JSON:
  {"vendors": [{"vendor": "amd", "mechanism": "raw",
                "addresses": ["0000:03:00.0"]}]}
and with cdi also "cdi": {"kind", "files", "devices"}.

Exits 0, with an empty list too.)";

const char kRunArgsHelp[] = R"(
Prints the arguments for `podman run`. Warnings go to stderr.

The output is made for $(…): it has no white space, quotes or wildcards inside a
word. On any failure it is the single word --smolvm-gpu-error, which podman
rejects, so that no container runs without the GPU it was to get; what failed is
on stderr, and the exit status is 125.

With --remote the container needs no GPU on this host: it gets /opt/smolvm-cuda
(read-only), the socket of a running smolvm-cuda-daemon, SMOLVM_CUDA_ENDPOINT
and LD_LIBRARY_PATH. SELECTOR, all by default, then names the daemon's devices
(nvidia:0,nvidia:1) and becomes CUDA_VISIBLE_DEVICES. The daemon's own --gpus is
what limits a container.

EXAMPLES
  podman run --rm $(smolvm gpu run-args all) IMAGE
  mapfile -t args < <(smolvm gpu run-args amd:1 --format lines)
  podman run --rm $(smolvm gpu run-args --remote --socket /run/cuda.sock) IMAGE)";

const char kCheckHelp[] = R"(
Exits 0 when a CDI spec declares nvidia.com/gpu, and 1 when none does or when
that cannot be found out.)";

const char kExplainHelp[] = R"(
Reads what podman wrote to stderr and prints why and what to do about it, when
it looks like a failure to pass GPUs: CDI names that do not resolve, files of
the driver that a CDI spec names and that are gone, hooks of a spec that fail,
--group-add keep-groups without crun, NVIDIA's OCI hook in a rootless container.
What this host's CDI specs say of the devices and paths in the text comes first.

Exits 0 when a hint was printed and 1 when nothing fits.

EXAMPLE
  podman run … 2>error.txt || smolvm gpu explain <error.txt)";

const char kRunHelp[] = R"(
usage: smolvm gpu run SELECTOR [OPTIONS] -- [PODMAN-OPTION…] IMAGE [COMMAND…]

Runs `podman run` with the arguments of `smolvm gpu run-args` before those after
the `--`. Signals are passed on. Exits with podman's status (the container's, or
125 to 127 when it did not start); a failure to pass GPUs is explained on stderr.
A selector that the host cannot serve fails before podman starts, with 125.

podman's stderr is passed on through a pipe, so podman draws no progress bars.

EXAMPLES
  smolvm gpu run all -- --rm -it docker.io/rocm/pytorch
  smolvm gpu run --remote -- --rm IMAGE)";

const char kCdiSpecHelp[] = R"(
Writes a CDI 0.5.0 spec (JSON) that declares smolvm.dev/cuda=all: what
`run-args --remote` passes, for everything that reads CDI: podman, containerd,
Kubernetes. The daemon must be listening; containers started later use the same
socket path.

EXAMPLE
  smolvm gpu cdi-spec --socket /run/cuda.sock -o /etc/cdi/smolvm-cuda.json
  podman run --rm --device smolvm.dev/cuda=all IMAGE)";

}  // namespace smolvm::gpu
