// Says whether CUDA works here: names the device, sends 1 MiB there and back, runs a kernel and
// checks all it wrote. One line a call on stdout, in the form that scripts/run-cuda-probe.sh reads;
// scripts/cuda-probe.py prints the same. Exit status: 0 if every line worked, 1 otherwise, 2 for a
// wrong command line.
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "probe/driver.h"
#include "probe/vector_add.h"

namespace smolvm::probe {
namespace {

constexpr char kShim[] = "/opt/smolvm-cuda/libcuda.so.1";
constexpr std::uint32_t kElements = 1U << 24;
constexpr std::uint32_t kMaxElements = 1U << 30;
constexpr std::size_t kRoundtripBytes = 1U << 20;

constexpr char kUsage[] =
    "usage: cuda-probe [--library PATH] [--elements N]\n"
    "\n"
    "  --library PATH  the driver library to load (default: $SMOLVM_CUDA_SHIM, else "
    "/opt/smolvm-cuda/libcuda.so.1)\n"
    "  --elements N    elements of the vector add (default: 16777216)\n";

struct Options {
  const char* library = kShim;
  std::uint32_t elements = kElements;
};

// Written line by line: what was printed stays printed if a later call hangs or crashes.
__attribute__((format(printf, 1, 2))) void Line(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::vprintf(format, arguments);
  va_end(arguments);
  std::putchar('\n');
  std::fflush(nullptr);
}

const char* Bool(bool value) { return value ? "True" : "False"; }

void PrintLoadHints(const char* library) {
  if (access("/lib/ld-musl-x86_64.so.1", F_OK) == 0 ||
      access("/lib/ld-musl-aarch64.so.1", F_OK) == 0) {
    Line(
        "hint: this image's C library is musl; the shim needs a glibc image, such as "
        "python:3.12-slim");
  } else if (std::strcmp(library, kShim) == 0 && access(library, F_OK) != 0) {
    Line("hint: %s is there only in a machine started with --cuda", library);
  } else if (std::strcmp(library, kShim) == 0) {
    Line("hint: the shim needs a glibc image, and a program of its own architecture");
  } else {
    // Named by the user, or by $SMOLVM_CUDA_SHIM.
    Line("hint: %s is not the shim's usual place; in a machine started with --cuda that is %s",
         library, kShim);
  }
}

// Sends bytes that differ everywhere to the device and compares what comes back. Prints its lines.
class Roundtrip {
 public:
  Roundtrip() : sent_(Allocate()), received_(Allocate()) {
    for (std::size_t i = 0; i < kRoundtripBytes / sizeof(std::uint32_t); ++i) {
      const std::uint32_t word =
          static_cast<std::uint32_t>(i) * 2654435761U;  // Odd, so no word comes twice.
      std::memcpy(sent_ + i * sizeof(word), &word, sizeof(word));
    }
  }
  ~Roundtrip() {
    std::free(sent_);
    std::free(received_);
  }
  Roundtrip(const Roundtrip&) = delete;
  Roundtrip& operator=(const Roundtrip&) = delete;

  bool Do(const Driver& driver) {
    DevicePointer pointer = 0;
    Result code = driver.cuMemAlloc(&pointer, kRoundtripBytes);
    Line("cuMemAlloc   -> %d", code);
    if (code != 0) return false;
    code = driver.cuMemcpyHtoD(pointer, sent_, kRoundtripBytes);
    Line("cuMemcpyHtoD -> %d", code);
    bool ok = code == 0;
    std::memset(received_, 0, kRoundtripBytes);
    code = driver.cuMemcpyDtoH(received_, pointer, kRoundtripBytes);
    Line("cuMemcpyDtoH -> %d", code);
    ok = ok && code == 0;
    Line("roundtrip first 16 bytes match: %s", Bool(ok && std::memcmp(sent_, received_, 16) == 0));
    code = driver.cuMemFree(pointer);
    Line("cuMemFree    -> %d", code);
    const bool match = ok && std::memcmp(sent_, received_, kRoundtripBytes) == 0;
    Line("roundtrip all bytes match: %s", Bool(match));
    return match && code == 0;
  }

 private:
  static unsigned char* Allocate() {
    auto* bytes = static_cast<unsigned char*>(std::malloc(kRoundtripBytes));
    if (bytes == nullptr) {
      std::fputs("cuda-probe: out of memory\n", stderr);
      std::exit(1);
    }
    return bytes;
  }

  unsigned char* sent_;
  unsigned char* received_;
};

bool AddVectors(const Driver& driver, std::uint32_t elements) {
  const VectorAddResult result = VectorAdd(driver, elements);
  if (result.call != nullptr)
    std::fprintf(stderr, "cuda-probe: vector_add: %s failed\n", result.call);
  Line("vector_add -> %d elements = %u match: %s", result.code, elements, Bool(result.match));
  return result.match;
}

bool OpenDevice(const Driver& driver, Device* device) {
  Result code = driver.cuInit(0);
  Line("cuInit -> %d", code);
  if (code != 0) return false;
  int count = 0;
  code = driver.cuDeviceGetCount(&count);
  Line("cuDeviceGetCount -> %d count = %d", code, count);
  if (code != 0 || count < 1) return false;
  char name[256] = "";
  code = driver.cuDeviceGet(device, 0);
  if (code == 0) code = driver.cuDeviceGetName(name, sizeof(name) - 1, *device);
  Line("cuDeviceGetName -> %d name = %s", code, name);
  return code == 0;
}

bool ProbeDevice(const Options& options) {
  Driver driver = {};
  char why[512] = "";
  if (!LoadDriver(options.library, &driver, why, sizeof(why))) {
    Line("load_shim -> FAILED %s", why);
    PrintLoadHints(options.library);
    return false;
  }
  Line("load_shim -> ok %s", options.library);
  Device device = 0;
  if (!OpenDevice(driver, &device)) return false;
  Context context = nullptr;
  Result code = driver.cuCtxCreate(&context, 0, device);
  Line("cuCtxCreate -> %d", code);
  if (code != 0) return false;
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  code = driver.cuMemGetInfo(&free_bytes, &total_bytes);
  Line("cuMemGetInfo -> %d total MiB = %zu", code, total_bytes >> 20);
  bool ok = code == 0;
  ok = Roundtrip().Do(driver) && ok;
  ok = AddVectors(driver, options.elements) && ok;
  driver.cuCtxDestroy(context);
  return ok;
}

bool ParseElements(const char* text, std::uint32_t* elements) {
  char* end = nullptr;
  errno = 0;
  const unsigned long long value = std::strtoull(text, &end, 10);
  if (errno != 0 || end == text || *end != '\0' || *text == '-' || value == 0 ||
      value > kMaxElements)
    return false;
  *elements = static_cast<std::uint32_t>(value);
  return true;
}

// False when the command line is wrong, having said how.
bool ParseOptions(int argc, char** argv, Options* options) {
  const char* shim = std::getenv("SMOLVM_CUDA_SHIM");
  if (shim != nullptr && *shim != '\0') options->library = shim;
  for (int i = 1; i < argc; ++i) {
    const char* value = i + 1 < argc ? argv[i + 1] : nullptr;
    if (std::strcmp(argv[i], "--library") == 0 && value != nullptr) {
      if (*value == '\0') {
        std::fputs("cuda-probe: --library takes a path, not ''\n", stderr);
        return false;
      }
      options->library = value;
    } else if (std::strcmp(argv[i], "--elements") == 0 && value != nullptr) {
      if (!ParseElements(value, &options->elements)) {
        std::fprintf(stderr, "cuda-probe: --elements takes a number from 1 to %u, not '%s'\n",
                     kMaxElements, value);
        return false;
      }
    } else {
      std::fprintf(stderr, "cuda-probe: unknown argument or missing value: '%s'\n%s", argv[i],
                   kUsage);
      return false;
    }
    ++i;
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
  return smolvm::probe::ProbeDevice(options) ? 0 : 1;
}
