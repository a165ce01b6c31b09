// Program for the tests of the API: "images" are text that lists kernels and variables, and kernels
// are C++ functions found by name. Nothing of the real front end or compiler is in these tests.
//
//   //fake
//   kernel NAME SIZE SIZE …     (parameters, each at its natural alignment)
//   variable NAME SIZE [managed]
//   bad CODE                    (loading, and adding to a link, fails with this CUresult)
// Linking puts the lines of such texts together.
#include <chrono>
#include <cstring>
#include <mutex>
#include <sstream>
#include <thread>
#include <utility>

#include "host-daemon/emulation/image/linker.h"
#include "host-daemon/emulation/runtime/program.h"

namespace smolvm::emulation {
namespace {

template <typename T>
T Read(std::span<const std::byte> params, size_t offset) {
  T value;
  std::memcpy(&value, params.data() + offset, sizeof(value));
  return value;
}

CUresult RunByName(const std::string& name, const LaunchConfig& config,
                   std::span<const std::byte> params) {
  if (name == "store") {  // (u32* to, u32 value)
    *reinterpret_cast<uint32_t*>(Read<uint64_t>(params, 0)) = Read<uint32_t>(params, 8);
  } else if (name == "increment") {  // (u32* counter)
    auto* counter = reinterpret_cast<uint32_t*>(Read<uint64_t>(params, 0));
    __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
  } else if (name == "sleep") {  // (u32 milliseconds)
    std::this_thread::sleep_for(std::chrono::milliseconds(Read<uint32_t>(params, 0)));
  } else if (name == "echo") {  // (u8* to, …): copies all parameters there
    std::memcpy(reinterpret_cast<void*>(Read<uint64_t>(params, 0)), params.data(), params.size());
  } else if (name == "shape") {  // (u32* to): grid, block, shared bytes, cooperative, priority
    const uint32_t values[] = {config.grid[0],
                               config.grid[1],
                               config.grid[2],
                               config.block[0],
                               config.block[1],
                               config.block[2],
                               static_cast<uint32_t>(config.dynamic_shared_bytes),
                               config.cooperative,
                               static_cast<uint32_t>(config.priority)};
    std::memcpy(reinterpret_cast<void*>(Read<uint64_t>(params, 0)), values, sizeof(values));
  } else if (name.starts_with("fault")) {
    return static_cast<CUresult>(std::stoi(name.substr(5)));
  }
  return CUDA_SUCCESS;
}

class FakeProgram : public Program {
 public:
  explicit FakeProgram(Arena& arena) : arena_(arena) {}
  ~FakeProgram() override {
    for (const VariableInfo& variable : variables_) arena_.Free(variable.address);
  }

  CUresult Read(const std::string& text, const LoadOptions& options, JitLog* log) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string what, name;
      words >> what >> name;
      if (what == "kernel") AddKernel(name, words, options);
      if (what == "variable") AddVariable(name, words);
      if (what == "bad") {
        log->error = "bad image, as asked";
        return static_cast<CUresult>(std::stoi(name));
      }
    }
    log->info = options.verbose ? "loaded, verbosely" : "loaded";
    return CUDA_SUCCESS;
  }

  std::span<const KernelInfo> kernels() const override { return kernels_; }
  std::span<const VariableInfo> variables() const override { return variables_; }
  CUresult Compile(size_t kernel) override {
    return kernels_[kernel].name == "untranslatable" ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
  }
  CUresult Launch(size_t kernel, const LaunchConfig& config,
                  std::span<const std::byte> params) override {
    return RunByName(kernels_[kernel].name, config, params);
  }

 private:
  void AddKernel(const std::string& name, std::istream& words, const LoadOptions& options) {
    KernelInfo info;
    info.name = name;
    for (size_t size; words >> size;) {
      const size_t alignment = size >= 8 ? 8 : size;
      info.param_bytes = (info.param_bytes + alignment - 1) / alignment * alignment;
      info.params.push_back({info.param_bytes, size});
      info.param_bytes += size;
    }
    info.static_shared_bytes = name == "shared" ? 16384 : 0;
    if (name == "bounded") info.max_threads_per_block = 128;
    if (name == "required")
      info.required_block[0] = 64, info.required_block[1] = info.required_block[2] = 1;
    info.num_regs = 32;
    info.ptx_version = 75;
    info.binary_version = options.compute_capability;
    kernels_.push_back(std::move(info));
  }

  void AddVariable(const std::string& name, std::istream& words) {
    size_t size = 0;
    std::string kind;
    words >> size >> kind;
    variables_.push_back({name, arena_.Allocate(size), size, false, kind == "managed"});
  }

  Arena& arena_;
  std::vector<KernelInfo> kernels_;
  std::vector<VariableInfo> variables_;
};

class FakeLinker : public Linker {
 public:
  CUresult Add(CUjitInputType, std::span<const std::byte> data, std::string_view name,
               JitLog* log) override {
    const std::string text(reinterpret_cast<const char*>(data.data()), data.size());
    if (const size_t bad = text.find("bad "); bad != std::string::npos) {
      log->error += std::string(name) + ": bad\n";
      return static_cast<CUresult>(std::stoi(text.substr(bad + 4)));
    }
    log->info += std::string(name) + ": added\n";
    lines_ += text.substr(0, text.find('\0'));
    return CUDA_SUCCESS;
  }
  CUresult Complete(JitLog* log, std::vector<std::byte>* image) override {
    log->info += "linked\n";
    const std::string text = "//fake\n" + lines_;
    image->resize(text.size() + 1);
    std::memcpy(image->data(), text.c_str(), text.size() + 1);
    return CUDA_SUCCESS;
  }

 private:
  std::string lines_;
};

}  // namespace

CUresult Program::Load(const void* image, const LoadOptions& options, Arena& arena, JitLog* log,
                       std::unique_ptr<Program>* program) {
  const char* text = static_cast<const char*>(image);
  if (std::strncmp(text, "//fake", 6) != 0) {
    log->error = "not a fake image";
    return CUDA_ERROR_INVALID_IMAGE;
  }
  auto made = std::make_unique<FakeProgram>(arena);
  const CUresult result = made->Read(text, options, log);
  if (result == CUDA_SUCCESS) *program = std::move(made);
  return result;
}

std::unique_ptr<Linker> Linker::Make(const LoadOptions&) { return std::make_unique<FakeLinker>(); }

void FlushDeviceOutput() {}

}  // namespace smolvm::emulation
