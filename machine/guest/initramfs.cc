#include "machine/guest/initramfs.h"

#include <algorithm>

#include "machine/guest/cpio.h"
#include "machine/util/failure.h"
#include "machine/util/files.h"

namespace smolvm::machine {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxAgent = 64 << 20;
constexpr size_t kMaxModule = 64 << 20;
constexpr size_t kMaxLibrary = 512 << 20;

void AddCudaLibraries(CpioWriter* cpio, const fs::path& folder) {
  cpio->AddFolder("smolvm/cuda");
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (IsGuestLibrary(entry.path().filename())) names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    cpio->AddFile("smolvm/cuda/" + name, ReadFile(folder / name, kMaxLibrary), 0755);
  }
  // Programs that link with -lcuda, or open the plain name, want this one as well.
  if (std::find(names.begin(), names.end(), "libcuda.so") == names.end()) {
    cpio->AddFile("smolvm/cuda/libcuda.so", ReadFile(folder / "libcuda.so.1", kMaxLibrary), 0755);
  }
}

}  // namespace

bool IsGuestLibrary(const std::string& file_name) {
  for (const std::string_view name :
       {"libcuda.so", "libcudart.so", "libcublas.so", "libcublasLt.so", "libnvidia-ml.so"}) {
    if (file_name == name) return true;
    if (file_name.rfind(std::string(name) + ".", 0) != 0) continue;
    const std::string version = file_name.substr(name.size() + 1);
    return std::all_of(version.begin(), version.end(),
                       [](unsigned char c) { return std::isdigit(c) || c == '.'; });
  }
  return false;
}

void WriteInitramfs(const fs::path& target, const std::string& agent, const GuestKernel& kernel,
                    GuestConfig config, const fs::path& cuda_folder) {
  config.modules = kernel.load_order;
  CpioWriter cpio;
  for (const char* folder : {"dev", "proc", "smolvm", "smolvm/modules"}) cpio.AddFolder(folder);
  cpio.AddDevice("dev/console", 5, 1);
  cpio.AddFile("init", ReadFile(agent, kMaxAgent), 0755);
  for (const std::string& name : kernel.load_order) {
    cpio.AddFile("smolvm/modules/" + name, ReadFile(kernel.modules / name, kMaxModule));
  }
  if (config.cuda) AddCudaLibraries(&cpio, cuda_folder);
  cpio.AddFile("smolvm/config", EncodeConfig(config), 0600);
  WriteFileAtomically(target, cpio.Finish());
}

}  // namespace smolvm::machine
