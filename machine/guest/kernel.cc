#include "machine/guest/kernel.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>

#include "machine/guest/modules.h"
#include "machine/util/failure.h"
#include "machine/util/files.h"
#include "machine/util/progress.h"
#include "machine/util/tool.h"

namespace smolvm::machine {
namespace {

namespace fs = std::filesystem;

#if defined(__aarch64__)
constexpr char kMetaPackage[] = "linux-image-cloud-arm64";
#else
constexpr char kMetaPackage[] = "linux-image-cloud-amd64";
#endif
constexpr size_t kMaxModule = 64 << 20;
constexpr std::chrono::hours kLookAgainAfter{24 * 7};
constexpr char kFetching[] = "fetching the guest kernel";

// Options that make apt use lists and caches of our own, for a user who cannot write the system's
// or a system that has none.
std::vector<std::string> PrivateApt(const fs::path& folder) {
  for (const char* name : {"lists/partial", "cache/archives/partial"}) MakeFolders(folder / name);
  std::vector<std::string> options;
  for (const std::string& setting :
       {"Dir::State::Lists=" + (folder / "lists").string(),
        "Dir::Cache=" + (folder / "cache").string(), std::string("APT::Sandbox::User="),
        std::string("Debug::NoLocking=1")}) {
    options.push_back("-o");
    options.push_back(setting);
  }
  return options;
}

std::vector<std::string> Apt(const char* program, const std::vector<std::string>& options,
                             std::initializer_list<std::string> words) {
  std::vector<std::string> argv = {program};
  argv.insert(argv.end(), options.begin(), options.end());
  argv.insert(argv.end(), words);
  return argv;
}

// Downloads the kernel's package into `folder`; the host's package lists are used when they know
// it, fresh private ones otherwise (the host's may also name a version that the mirror has
// dropped).
void Download(const fs::path& folder) {
  const std::vector<std::string> own_lists = PrivateApt(folder / "apt");
  std::string reason = "no package source knows it";
  for (const bool use_own : {false, true}) {
    const std::vector<std::string> options = use_own ? own_lists : std::vector<std::string>{};
    if (use_own) {
      const ToolResult update = RunTool(Apt("apt-get", options, {"-q", "update"}),
                                        {.doing = "reading the package lists"});
      if (update.status != 0) reason = update.Reason();
    }
    const ToolResult depends = RunTool(Apt("apt-cache", options, {"depends", kMetaPackage}));
    const std::string package = KernelPackageFrom(depends.out);
    if (package.empty()) continue;
    const ToolResult download = RunTool(Apt("apt-get", options, {"-q", "download", package}),
                                        {.doing = kFetching, .workdir = folder.string()});
    if (download.status == 0) return;
    reason = download.Reason();
  }
  Fail("the guest kernel ({}) cannot be fetched: {}", kMetaPackage, reason);
}

fs::path OnlyDeb(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".deb") return entry.path();
  }
  Fail("apt-get said that it fetched the guest kernel, but left no package");
}

std::string ModuleName(fs::path file) {
  std::string name = file.filename();
  name.resize(name.find(".ko"));
  for (char& c : name) c = c == '-' ? '_' : c;
  return name;
}

// Copies what a machine loads from the unpacked package to `target`.
std::vector<std::string> TakeModules(const fs::path& tree, const fs::path& target) {
  std::map<std::string, fs::path> files;
  std::map<std::string, std::vector<std::string>> depends;
  for (const auto& entry : fs::recursive_directory_iterator(tree)) {
    const std::string file = entry.path().filename();
    if (!entry.is_regular_file() || file.find(".ko") == std::string::npos) continue;
    fs::path path = entry.path();
    // Newer kernels ship their modules packed.
    if (path.extension() == ".xz") {
      MustRun({"xz", "-d", path.string()}, {.doing = "unpacking the guest kernel"});
      path.replace_extension();
    }
    const std::string name = ModuleName(path);
    files[name] = path;
    depends[name] = {};
  }
  for (auto& [name, list] : depends) list = ModuleDependencies(ReadFile(files[name], kMaxModule));
  MakeFolders(target);
  std::vector<std::string> order;
  for (const std::string& name : LoadOrder(WantedModules(), depends)) {
    fs::copy_file(files[name], target / (name + ".ko"));
    order.push_back(name + ".ko");
  }
  if (order.empty()) Fail("the guest kernel's package holds no modules");
  return order;
}

fs::path KernelImageIn(const fs::path& tree) {
  for (const auto& entry : fs::directory_iterator(tree / "boot")) {
    if (entry.path().filename().string().rfind("vmlinuz", 0) == 0) return entry.path();
  }
  Fail("the guest kernel's package holds no kernel");
}

// Unpacks the package into `kernels/<version>`. Returns the version.
std::string Unpack(const fs::path& deb, const fs::path& work, const fs::path& kernels) {
  std::string version =
      MustRun({"dpkg-deb", "-f", deb.string(), "Version"}, {.doing = "reading the kernel package"})
          .out;
  version.erase(version.find_last_not_of('\n') + 1);
  for (char& c : version) c = c == '/' || c == ':' ? '_' : c;
  if (version.empty() || version[0] == '.') Fail("the kernel package has no version");
  const fs::path final_folder = kernels / version;
  if (fs::exists(final_folder / "kernel.json")) return version;
  const fs::path tree = work / "tree", ready = work / "ready";
  MustRun({"dpkg-deb", "-x", deb.string(), tree.string()}, {.doing = "unpacking the guest kernel"});
  MakeFolders(ready);
  fs::copy_file(KernelImageIn(tree), ready / "vmlinuz");
  const nlohmann::json json = {{"modules", TakeModules(tree / "lib/modules", ready / "modules")}};
  WriteFileAtomically(ready / "kernel.json", json.dump());
  RemoveTree(final_folder);
  fs::rename(ready, final_folder);
  return version;
}

}  // namespace

GuestKernel LoadKernel(const fs::path& folder) {
  GuestKernel kernel{folder, folder / "vmlinuz", folder / "modules", {}};
  try {
    nlohmann::json::parse(ReadFile(folder / "kernel.json")).at("modules").get_to(kernel.load_order);
  } catch (const nlohmann::json::exception& error) {
    Fail("{} is damaged; delete the folder: {}", folder.string(), error.what());
  }
  return kernel;
}

std::string KernelPackageFrom(std::string_view text) {
  constexpr std::string_view kPrefix = "linux-image-";
  size_t at = 0;
  while ((at = text.find("Depends: ", at)) != std::string_view::npos) {
    at += 9;
    std::string_view name = text.substr(at, text.find_first_of(" \n", at) - at);
    if (name.substr(0, kPrefix.size()) == kPrefix) return std::string(name);
  }
  return {};
}

std::optional<GuestKernel> CachedKernel(const fs::path& cache) {
  const fs::path kernels = cache / "kernels", current = kernels / "current";
  if (!fs::exists(current)) return std::nullopt;
  const fs::path folder = kernels / ReadFile(current);
  if (!fs::exists(folder / "kernel.json")) return std::nullopt;
  return LoadKernel(folder);
}

GuestKernel EnsureKernel(const fs::path& cache) {
  const fs::path kernels = cache / "kernels", current = kernels / "current";
  MakeFolders(kernels);
  const UniqueFd lock = LockFile(kernels / "lock", true);
  struct stat status {};
  const bool have = stat(current.c_str(), &status) == 0 && CachedKernel(cache);
  const char* own_package = std::getenv("SMOLVM_KERNEL_PACKAGE");
  const std::time_t look_again = status.st_mtime + std::chrono::seconds(kLookAgainAfter).count();
  if (have && own_package == nullptr && std::time(nullptr) < look_again) {
    return LoadKernel(kernels / ReadFile(current));
  }
  try {
    const TempFolder work(cache / "tmp");
    if (own_package != nullptr) {
      WriteFileAtomically(current, Unpack(own_package, work.path(), kernels));
    } else {
      Download(work.path());
      WriteFileAtomically(current, Unpack(OnlyDeb(work.path()), work.path(), kernels));
    }
  } catch (const Failure& failure) {
    if (!have || failure.status() != kOwnError) throw;
    Say(std::string(failure.what()) + "; the one from the cache is used");
    utimensat(AT_FDCWD, current.c_str(), nullptr, 0);
  } catch (const fs::filesystem_error& error) {
    Fail("the guest kernel cannot be unpacked: {}", error.what());
  }
  return LoadKernel(kernels / ReadFile(current));
}

}  // namespace smolvm::machine
