#include "machine/util/paths.h"

#include <pwd.h>
#include <unistd.h>

#include <cstdlib>

#include "machine/util/failure.h"
#include "machine/util/tool.h"

namespace smolvm::machine {
namespace {

namespace fs = std::filesystem;

fs::path Home() {
  if (const char* home = std::getenv("HOME"); home != nullptr && home[0] == '/') return home;
  if (const passwd* entry = getpwuid(getuid()); entry != nullptr && entry->pw_dir[0] == '/') {
    return entry->pw_dir;
  }
  Fail("there is no home folder; set HOME");
}

// The XDG base folder specification: relative values are to be ignored.
fs::path XdgFolder(const char* variable, const char* below_home) {
  const char* value = std::getenv(variable);
  return value != nullptr && value[0] == '/' ? fs::path(value) : Home() / below_home;
}

fs::path OwnFolder() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  return error ? fs::path("/nonexistent") : self.parent_path();
}

}  // namespace

fs::path StateFolder() { return XdgFolder("XDG_STATE_HOME", ".local/state") / "smolvm"; }

fs::path CacheFolder() { return XdgFolder("XDG_CACHE_HOME", ".cache") / "smolvm-cuda"; }

std::string FindOwnProgram(const std::string& name, const char* variable) {
  if (const char* value = std::getenv(variable); value != nullptr && value[0] != '\0') {
    const std::string path = FindProgram(value);
    if (path.empty()) Fail("{}={} is not a program that can be run", variable, value);
    return fs::absolute(path);
  }
  for (const fs::path& folder : {OwnFolder(), OwnFolder() / "../libexec/smolvm"}) {
    const fs::path path = folder / name;
    if (access(path.c_str(), X_OK) == 0) return path.lexically_normal();
  }
  const std::string path = FindProgram(name);
  if (path.empty())
    Fail("the program '{}' is missing (looked beside smolvm; {} names it)", name, variable);
  return path;
}

fs::path GuestLibraryFolder() {
  constexpr char kVariable[] = "SMOLVM_CUDA_GUEST_LIBS";
  constexpr char kLibrary[] = "libcuda.so.1";
  if (const char* value = std::getenv(kVariable); value != nullptr && value[0] != '\0') {
    const fs::path folder = fs::absolute(value);
    if (!fs::exists(folder / kLibrary)) Fail("{}={} holds no {}", kVariable, value, kLibrary);
    return folder;
  }
  for (const char* folder :
       {"../lib/smolvm-cuda", "../lib/guest", "../guest-shim/libcuda", "../lib"}) {
    const fs::path candidate = OwnFolder() / folder;
    if (fs::exists(candidate / kLibrary)) return candidate.lexically_normal();
  }
  Fail("the guest's libcuda.so.1 is missing (looked beside smolvm; {} names its folder)",
       kVariable);
}

}  // namespace smolvm::machine
