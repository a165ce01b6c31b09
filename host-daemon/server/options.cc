#include "host-daemon/server/options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <stdexcept>

#include "container/cuda_devices.h"

namespace smolvm::server {
namespace {

constexpr char kDescription[] =
    "Serves CUDA to guests: accepts their connections and gives each guest process a worker\n"
    "process of its own. Logs key=value lines on stderr.";

// What the emulation library accepts.
constexpr uint64_t kLeastEmulationMemory = uint64_t{1} << 20;
constexpr uint64_t kMostEmulationMemory = uint64_t{16} << 40;  // the device's arena's

struct Texts {
  std::vector<std::string> listen;
  std::string log_level = "info";
  std::string backend = "auto";
  std::string driver = "libcuda.so.1";
  std::string gpus = "all";
  std::string memory_limit;
  std::string sandbox = "on";
  std::string emulation_library, emulation_memory, emulation_compute_capability, emulation_cache;
  std::string kernel_memory = "1024";
  double kernel_timeout = 0, compile_limit = 3;
};

std::filesystem::path ProgramFolder() {
  std::error_code code;
  return std::filesystem::read_symlink("/proc/self/exe", code).parent_path();
}

// The library is installed in ../lib, and beside the programs where someone copied all of them.
std::string FindEmulation() {
  const std::filesystem::path folder = ProgramFolder();
  const std::filesystem::path beside = folder / "libsmolvm-cuda-emulation.so";
  std::error_code code;
  if (std::filesystem::exists(beside, code)) return beside;
  return folder.parent_path() / "lib" / "libsmolvm-cuda-emulation.so";
}

void Require(bool good, const char* option, const std::string& text, const char* expected) {
  if (!good) throw CLI::ValidationError(option, "\"" + text + "\" is not " + expected);
}

// The worker's form: "" for all, else "0,2".
std::string ParseGpus(const std::string& text) {
  gpu::CudaDevices devices;
  try {
    devices = gpu::ParseCudaDevices(text);
  } catch (const std::invalid_argument& error) {
    throw CLI::ValidationError("--gpus", error.what());
  }
  if (!devices) return "";
  if (devices->empty()) throw CLI::ValidationError("--gpus", "\"" + text + "\" names no device");
  return fmt::format("{}", fmt::join(devices->begin(), devices->end(), ","));
}

bool IsComputeCapability(const std::string& text) {
  const size_t dot = text.find('.');
  return dot != std::string::npos && dot > 0 && dot < 3 && dot + 2 == text.size() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c == '.' || isdigit(c) != 0; });
}

void AddOptions(CLI::App& app, Texts& texts, Options& options) {
  app.add_option(
         "--listen", texts.listen,
         "unix:PATH; vsock:PORT, for every guest of the kernel's vsock (vsock:CID:PORT, as guests "
         "write it, is taken too, and CID not looked at); or vhost-user:PATH, where QEMU connects "
         "to a vsock device of our own. May be given several times; at least once")
      ->expected(1)
      ->take_all();
  app.add_option("--backend", texts.backend,
                 "auto (the driver if it works and has a device, else emulation), driver or "
                 "emulation")
      ->check(CLI::IsMember({"auto", "driver", "emulation"}))
      ->capture_default_str();
  app.add_option("--driver", texts.driver, "the host's driver library")->capture_default_str();
  app.add_option("--gpus", texts.gpus,
                 "which GPUs guests may use: all, nvidia, or single ones, as 0,2 or "
                 "nvidia:0,nvidia:2, counted by PCI address; the emulation device is 0")
      ->capture_default_str();
  app.add_option("--memory-limit", texts.memory_limit,
                 "device memory for each session: MiB, or with a unit (512M, 2G)");
  app.add_option("--kernel-memory", texts.kernel_memory,
                 "what emulated kernels of a session may take of the host's memory while they run "
                 "(local and shared memory, stacks): MiB, or with a unit; 0 is no limit")
      ->capture_default_str();
  app.add_option("--sandbox", texts.sandbox,
                 "whether workers that emulate may open no files, start no programs and make no "
                 "sockets; with the driver, workers only gain no privileges")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
  app.add_option("--max-sessions", options.max_sessions, "guest processes at the same time")
      ->check(CLI::Range(1u, 4096u))
      ->capture_default_str();
  app.add_option("--max-sessions-per-peer", options.max_sessions_per_peer,
                 "of those, for one user of a Unix socket, one CID or one machine (default: three "
                 "quarters, so that one peer leaves room for others)")
      ->check(CLI::Range(1u, 4096u));
  app.add_option("--peer-cid", options.peer_cids,
                 "a guest that may connect to vsock endpoints (repeatable; default: every guest of "
                 "this host)")
      ->check(CLI::Range(3u, UINT32_MAX - 1));
  app.add_option("--workers-ready", options.workers_ready, "workers started before they are needed")
      ->check(CLI::Range(1u, 64u))
      ->capture_default_str();
  app.add_option("--drain-timeout", options.drain_seconds,
                 "seconds that SIGTERM leaves sessions to end by themselves")
      ->check(CLI::Range(0u, 86400u))
      ->capture_default_str();
  app.add_option("--log-level", texts.log_level, "off, error, warn, info or debug")
      ->capture_default_str();
  app.add_option("--emulation-memory", texts.emulation_memory,
                 "memory of the emulation device: MiB, or with a unit (default 1024)");
  app.add_option("--emulation-compute-capability", texts.emulation_compute_capability,
                 "of the emulation device, as 9.0");
  app.add_option("--emulation-cache", texts.emulation_cache, "folder for compiled kernels, or off");
  const auto add_seconds = [&app](const char* name, double& value, const char* text) {
    app.add_option(name, value, text)
        ->check(CLI::Range(0.0, 1e6))
        ->check(
            [](const std::string& word) {  // the range lets it through: it compares with nothing
              return word.find_first_of("nN") == std::string::npos ? "" : word + " is not a number";
            })
        ->capture_default_str();
  };
  add_seconds("--kernel-timeout", texts.kernel_timeout,
              "seconds after which an emulated kernel is ended; 0 is never");
  add_seconds("--compile-limit", texts.compile_limit,
              "seconds that compiling an emulated kernel may take, by its size: a larger one is "
              "refused; 0 is no limit");
  app.add_option("--emulation-library", texts.emulation_library)->group("");
  app.add_option("--worker", options.worker)->group("")->take_last();
  app.add_option("--vsock-device", options.vsock_device)->group("");
}

void SetEndpoints(const Texts& texts, Options* options) {
  // Checked here so that a wrong option is named rather than this one missed.
  if (texts.listen.empty()) throw CLI::RequiredError("--listen");
  for (const std::string& text : texts.listen) {
    transport::Endpoint endpoint;
    std::string error;
    if (!transport::ParseEndpoint(text, &endpoint, &error)) {
      throw CLI::ValidationError("--listen", error);
    }
    options->listen.push_back(endpoint);
  }
}

void SetWorkerArguments(const Texts& texts, Options* options) {
  std::vector<std::string>& arguments = options->worker_arguments;
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) arguments.push_back(fmt::format("--{}={}", name, value));
  };
  uint64_t bytes = 0;
  if (!texts.memory_limit.empty()) {
    Require(ParseSize(texts.memory_limit, &bytes) && bytes != 0, "--memory-limit",
            texts.memory_limit, "a size (512, 512M, 2G)");
    add("memory-limit", std::to_string(bytes));
  }
  Require(ParseSize(texts.kernel_memory, &bytes), "--kernel-memory", texts.kernel_memory,
          "a size (512, 512M, 2G)");
  const std::string kernel_memory = bytes == 0 ? "" : fmt::format("{}K", bytes >> 10);
  std::string emulation_memory;
  if (!texts.emulation_memory.empty()) {
    Require(ParseSize(texts.emulation_memory, &bytes) && bytes >= kLeastEmulationMemory &&
                bytes <= kMostEmulationMemory,
            "--emulation-memory", texts.emulation_memory,
            "a size from 1 MiB to 16 TiB (512, 512M, 2G)");
    // As the emulation library reads it, which knows fewer units.
    emulation_memory = fmt::format("{}K", bytes >> 10);
  }
  Require(texts.emulation_compute_capability.empty() ||
              IsComputeCapability(texts.emulation_compute_capability),
          "--emulation-compute-capability", texts.emulation_compute_capability,
          "a compute capability (9.0)");
  const std::string gpus = ParseGpus(texts.gpus);
  // With --backend auto the worker finds out.
  Require(texts.backend != "emulation" || gpus.empty() || gpus == "0", "--gpus", texts.gpus,
          "the emulation device, which is device 0 and the only one");
  add("backend", texts.backend);
  add("driver", texts.driver);
  add("emulation", texts.emulation_library.empty() ? FindEmulation() : texts.emulation_library);
  add("gpus", gpus);
  add("sandbox", texts.sandbox);
  add("log-level", texts.log_level);
  add("emulation-memory", emulation_memory);
  add("kernel-memory", kernel_memory);
  add("emulation-compute-capability", texts.emulation_compute_capability);
  add("emulation-cache", texts.emulation_cache);
  const auto add_ms = [&](const char* name, double seconds) {
    if (seconds <= 0) return;
    add(name, std::to_string(std::max<uint64_t>(1, static_cast<uint64_t>(seconds * 1000))));
  };
  add_ms("kernel-timeout-ms", texts.kernel_timeout);
  add_ms("compile-limit-ms", texts.compile_limit);
}

void SetRest(const Texts& texts, Options* options) {
  Require(log::ParseLevel(texts.log_level, &options->log_level), "--log-level", texts.log_level,
          "off, error, warn, info or debug");
  options->log_level_name = texts.log_level;
  if (options->worker.empty()) options->worker = ProgramFolder() / "smolvm-cuda-worker";
  if (options->vsock_device.empty()) {
    options->vsock_device = ProgramFolder() / "smolvm-cuda-vsock";
  }
}

}  // namespace

bool ParseSize(const std::string& text, uint64_t* bytes) {
  size_t used = 0;
  uint64_t number = 0;
  for (; used < text.size() && isdigit(static_cast<unsigned char>(text[used])) != 0; ++used) {
    if (used > 12) return false;
    number = number * 10 + static_cast<uint64_t>(text[used] - '0');
  }
  const std::string unit = text.substr(used);
  if (used == 0 || unit.size() > 1) return false;
  const size_t place =
      unit.empty() ? 1 : std::string("KMGT").find(static_cast<char>(toupper(unit[0])));
  if (place == std::string::npos) return false;
  const unsigned shift = 10 * (static_cast<unsigned>(place) + 1);
  if (number > (UINT64_MAX >> 1 >> shift)) return false;
  *bytes = number << shift;
  return true;
}

int ParseOptions(int argc, char** argv, Options* options) {
  CLI::App app(kDescription, "smolvm-cuda-daemon");
  app.set_version_flag("--version", "smolvm-cuda-daemon " SMOLVM_VERSION);
  Texts texts;
  AddOptions(app, texts, *options);
  try {
    app.parse(argc, argv);
    SetEndpoints(texts, options);
    SetWorkerArguments(texts, options);
    SetRest(texts, options);
    return -1;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    fmt::print(stderr, "smolvm-cuda-daemon: {}\n", error.what());
    return 2;
  }
}

}  // namespace smolvm::server
