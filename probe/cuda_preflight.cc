// Asks this host's NVIDIA driver what it is: loads libcuda, initialises it and lists its GPUs. A
// broken driver may hang or crash whoever loads it, so a child process does that, within a time
// limit. For scripts/preflight.sh; key=value lines:
//
//   libcuda=ok|absent|no_device|failed|crashed|timeout
//   error=<why, unless ok>
//   cuda_version=<the driver API's, such as 13.0>
//   driver=<the driver's own version, such as 580.105.08, if it says>
//   gpu=<name>               one line a GPU
//   host_gpu=<vendor> <mechanism> <PCI addresses>
//                            what `smolvm gpu` would hand to a container, one line a vendor,
//                            whatever the driver says: nvidia|amd|intel, then cdi|hook|raw
//
// Exit status: 0 if the driver lists a device, 1 if not, 2 for a wrong command line.
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>

#include "container/gpu.h"
#include "probe/driver.h"

namespace smolvm::probe {
namespace {

constexpr char kUsage[] =
    "usage: cuda-preflight [--library PATH] [--timeout SECONDS] [--root DIR]\n"
    "\n"
    "  --library PATH     the driver library to load (default: libcuda.so.1, found by the loader)\n"
    "  --timeout SECONDS  give up on the driver after that long (default: 20)\n"
    "  --root DIR         look for GPUs' device nodes and CDI specs below DIR (default: /)\n";

// What a child may say at most; a driver that lists more is not one.
constexpr std::size_t kMaxOutput = 64 * 1024;

struct Options {
  std::string library = "libcuda.so.1";
  int timeout_s = 20;
  std::string root = "/";
};

// The driver's version as nvidia-smi shows it: from NVML, which every driver brings, else from the
// kernel module.
std::string DriverVersion() {
  if (void* nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL); nvml != nullptr) {
    const auto init = reinterpret_cast<int (*)()>(dlsym(nvml, "nvmlInit_v2"));
    const auto get =
        reinterpret_cast<int (*)(char*, unsigned)>(dlsym(nvml, "nvmlSystemGetDriverVersion"));
    char version[96] = "";
    if (init != nullptr && get != nullptr && init() == 0 && get(version, sizeof(version)) == 0)
      return version;
  }
  std::FILE* file = std::fopen("/proc/driver/nvidia/version", "re");
  if (file == nullptr) return "";
  // "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.105.08  Wed …"; the open module puts words
  // before the number.
  char line[256] = "";
  const bool read = std::fgets(line, sizeof(line), file) != nullptr;
  std::fclose(file);
  if (!read) return "";
  for (char *save = nullptr, *word = strtok_r(line, " \t\n", &save); word != nullptr;
       word = strtok_r(nullptr, " \t\n", &save)) {
    if (std::strspn(word, "0123456789.") == std::strlen(word) && std::strchr(word, '.') != nullptr)
      return word;
  }
  return "";
}

// One line's value: a driver's text must not be able to forge another line.
std::string OneLine(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  return text;
}

// In the child. Prints what the driver says; returns the value of libcuda=.
const char* AskDriver(const Options& options, std::FILE* out, std::string* error) {
  Driver driver = {};
  char why[512] = "";
  if (!LoadDriver(options.library.c_str(), &driver, why, sizeof(why))) {
    *error = why;
    return std::strstr(why, "cannot open shared object file") != nullptr ? "absent" : "failed";
  }
  // CUDA_ERROR_NO_DEVICE: the driver works and there is nothing to drive.
  constexpr Result kNoDevice = 100;
  Result code = driver.cuInit(0);
  if (code != 0) {
    *error = "cuInit returned " + std::to_string(code);
    return code == kNoDevice ? "no_device" : "failed";
  }
  int version = 0;
  if (driver.cuDriverGetVersion(&version) == 0) {
    std::fprintf(out, "cuda_version=%d.%d\n", version / 1000, version % 1000 / 10);
  }
  const std::string own_version = OneLine(DriverVersion());
  if (!own_version.empty()) std::fprintf(out, "driver=%s\n", own_version.c_str());
  int count = 0;
  code = driver.cuDeviceGetCount(&count);
  if (code != 0 || count < 1) {
    *error = code != 0 ? "cuDeviceGetCount returned " + std::to_string(code)
                       : "the driver lists no device";
    return code != 0 ? "failed" : "no_device";
  }
  for (int i = 0; i < count; ++i) {
    Device device = 0;
    char name[256] = "";
    code = driver.cuDeviceGet(&device, i);
    if (code == 0) code = driver.cuDeviceGetName(name, sizeof(name) - 1, device);
    if (code != 0) {
      *error = "device " + std::to_string(i) + " has no name: error " + std::to_string(code);
      return "failed";
    }
    std::fprintf(out, "gpu=%s\n", OneLine(name).c_str());
  }
  return "ok";
}

// Never returns. Writes the child's lines to `out`; what the driver itself prints goes to stderr.
[[noreturn]] void Child(const Options& options, int out) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const rlimit no_core = {0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  // Which GPUs there are, not which this shell's programs may see.
  unsetenv("CUDA_VISIBLE_DEVICES");
  std::FILE* lines = fdopen(out, "w");
  if (lines == nullptr) _exit(1);
  dup2(STDERR_FILENO, STDOUT_FILENO);
  std::string error;
  const char* status = AskDriver(options, lines, &error);
  std::fprintf(lines, "libcuda=%s\n", status);
  if (!error.empty()) std::fprintf(lines, "error=%s\n", OneLine(error).c_str());
  std::fflush(lines);
  _exit(0);  // A driver's exit handlers may hang too.
}

// Reads the child's output until it closes it, or the time is up (false).
bool ReadAll(int in, int timeout_s, std::string* text) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::seconds(timeout_s);
  while (text->size() < kMaxOutput) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    pollfd ready = {in, POLLIN, 0};
    const int polled = poll(&ready, 1, static_cast<int>(left));
    if (polled < 0 && errno == EINTR) continue;
    if (polled <= 0) return false;
    char buffer[4096];
    const ssize_t size = read(in, buffer, sizeof(buffer));
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return true;
    text->append(buffer, static_cast<std::size_t>(size));
  }
  return true;
}

// The GPUs that the host's files show, found as `smolvm gpu` finds them.
void PrintHostGpus(const std::string& root) {
  gpu::Host host;
  host.root = gpu::HostRoot(root);
  host.podman.program.clear();  // podman is not asked: its CDI folders are looked at as they are
  host.warn = [](std::string_view) {};
  for (const gpu::DetectedVendor& found : gpu::DetectGpus(host)) {
    std::string line(gpu::VendorName(found.vendor));
    line.append(" ").append(gpu::MechanismName(found.mechanism));
    for (const std::string& address : found.addresses) line.append(" ").append(address);
    std::printf("host_gpu=%s\n", OneLine(line).c_str());
  }
}

int AskInTime(const Options& options) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    std::perror("cuda-preflight: pipe");
    return 1;
  }
  const pid_t child = fork();
  if (child < 0) {
    std::perror("cuda-preflight: fork");
    return 1;
  }
  if (child == 0) Child(options, ends[1]);
  close(ends[1]);
  std::string text;
  const bool in_time = ReadAll(ends[0], options.timeout_s, &text);
  if (!in_time) kill(child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  std::fputs(text.c_str(), stdout);
  if (!in_time) {
    std::printf("libcuda=timeout\nerror=the driver did not answer within %d s\n",
                options.timeout_s);
    return 1;
  }
  if (WIFSIGNALED(status)) {
    std::printf("libcuda=crashed\nerror=the driver crashed with signal %d (%s)\n", WTERMSIG(status),
                strsignal(WTERMSIG(status)));
    return 1;
  }
  if (text.find("libcuda=") == std::string::npos) {
    std::printf("libcuda=crashed\nerror=the driver ended the process with status %d\n",
                WEXITSTATUS(status));
    return 1;
  }
  return text.find("libcuda=ok\n") != std::string::npos ? 0 : 1;
}

int Run(const Options& options) {
  const int status = AskInTime(options);
  try {
    PrintHostGpus(options.root);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cuda-preflight: the host's GPUs cannot be listed: %s\n", error.what());
  }
  return status;
}

bool ParseOptions(int argc, char** argv, Options* options) {
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : nullptr;
    if (name == "--library" && value != nullptr) {
      options->library = value;
    } else if (name == "--root" && value != nullptr) {
      options->root = value;
    } else if (name == "--timeout" && value != nullptr) {
      char* end = nullptr;
      const long seconds = std::strtol(value, &end, 10);
      if (end == value || *end != '\0' || seconds < 1 || seconds > 3600) {
        std::fprintf(stderr, "cuda-preflight: --timeout takes seconds from 1 to 3600, not '%s'\n",
                     value);
        return false;
      }
      options->timeout_s = static_cast<int>(seconds);
    } else {
      std::fprintf(stderr, "cuda-preflight: unknown argument or missing value: '%s'\n%s", argv[i],
                   kUsage);
      return false;
    }
  }
  return true;
}

}  // namespace
}  // namespace smolvm::probe

int main(int argc, char** argv) {
  if (argc == 2 && (std::strcmp(argv[1], "--help") == 0 || std::strcmp(argv[1], "-h") == 0)) {
    std::fputs(smolvm::probe::kUsage, stdout);
    return 0;
  }
  smolvm::probe::Options options;
  if (!smolvm::probe::ParseOptions(argc, argv, &options)) return 2;
  return smolvm::probe::Run(options);
}
