#include "host-daemon/sandbox/sandbox.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>

#include "host-daemon/sandbox/call_filter.h"
#include "protocol/log/log.h"

namespace smolvm::sandbox {
namespace {

// --- Landlock, see landlock(7).

// Of the first version of the interface, and those that later ones added. What a kernel does not
// know must not be asked of it.
constexpr uint64_t kFirstAccesses = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1;
constexpr uint64_t kRefer = uint64_t{1} << 13;         // version 2: moving between folders
constexpr uint64_t kTruncate = uint64_t{1} << 14;      // version 3
constexpr uint64_t kIoctlDevices = uint64_t{1} << 15;  // version 5
constexpr uint64_t kReplaceAccesses = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR |
                                      LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG |
                                      LANDLOCK_ACCESS_FS_REMOVE_FILE | kTruncate;

uint64_t AccessesOf(long version) {
  return kFirstAccesses | (version >= 2 ? kRefer : 0) | (version >= 3 ? kTruncate : 0) |
         (version >= 5 ? kIoctlDevices : 0);
}

constexpr uint64_t kTcp = 3;     // version 4: bind and connect
constexpr uint64_t kScopes = 3;  // version 6: abstract Unix sockets and signals

// As far as the running kernel knows it: headers may be older, and know less.
struct RulesetAttributes {
  uint64_t handled_access_fs = 0;
  uint64_t handled_access_net = 0;  // version 4
  uint64_t scoped = 0;              // version 6
};
size_t BytesOf(long version) {
  return version >= 6 ? sizeof(RulesetAttributes) : version >= 4 ? 16 : 8;
}

struct Descriptor {
  explicit Descriptor(long number) : fd(static_cast<int>(number)) {}
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  const int fd;
};

bool Fail(std::string* error, const std::string& what, int code) {
  *error = what + ": " + strerror(code);
  return false;
}

constexpr uint64_t kReadAccesses = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
constexpr uint64_t kServeAccesses = kReplaceAccesses | kRefer | LANDLOCK_ACCESS_FS_REMOVE_DIR |
                                    LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_SOCK |
                                    LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_SYM;
// What a rule about a file, not a folder, may give.
constexpr uint64_t kFileAccesses =
    LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | kTruncate;

uint64_t AccessesFor(SandboxNeeds::Entries entries) {
  switch (entries) {
    case SandboxNeeds::Entries::kReplace:
      return kReplaceAccesses;
    case SandboxNeeds::Entries::kRemove:
      return LANDLOCK_ACCESS_FS_REMOVE_FILE;
    case SandboxNeeds::Entries::kServe:
      return kServeAccesses;
    case SandboxNeeds::Entries::kRead:
      return kReadAccesses;
  }
  return 0;
}

bool AllowFolder(int rules, const std::string& folder, uint64_t accesses, std::string* error) {
  const Descriptor parent(open(folder.c_str(), O_PATH | O_CLOEXEC));
  struct stat status {};
  // Whoever wanted it has said that it cannot be used, and goes on without.
  if (parent.fd < 0 || fstat(parent.fd, &status) != 0) return true;
  if (!S_ISDIR(status.st_mode)) accesses &= kFileAccesses;
  landlock_path_beneath_attr rule{};
  rule.allowed_access = accesses;
  rule.parent_fd = parent.fd;
  return syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) == 0 ||
         Fail(error, "Landlock takes no rule for " + folder, errno);
}

// `*entered`: whether the kernel has it.
bool EnterLandlock(const SandboxNeeds& needs, bool* entered, std::string* error) {
  *entered = false;
  const long version =
      syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (version < 0) {
    // ENOSYS: a kernel before 5.13; EOPNOTSUPP: it is not among the kernel's security modules.
    log::Debug("event=no_landlock reason={}", log::Quote(strerror(errno)));
    return true;
  }
  RulesetAttributes attributes;
  attributes.handled_access_fs = AccessesOf(version);
  if (version >= 4) attributes.handled_access_net = kTcp;
  if (version >= 6) attributes.scoped = kScopes;
  const Descriptor rules(syscall(SYS_landlock_create_ruleset, &attributes, BytesOf(version), 0));
  if (rules.fd < 0) return Fail(error, "no Landlock rules can be made", errno);
  const uint64_t accesses = AccessesFor(needs.entries) & attributes.handled_access_fs;
  if (needs.entries == SandboxNeeds::Entries::kReplace && !needs.folder.empty())
    mkdir(needs.folder.c_str(), 0700);
  if (!needs.folder.empty() && !AllowFolder(rules.fd, needs.folder, accesses, error)) return false;
  *entered = syscall(SYS_landlock_restrict_self, rules.fd, 0) == 0;
  return *entered || Fail(error, "Landlock cannot be entered", errno);
}

// --- capabilities(7): none, also for programs that were started, were there any.

bool DropCapabilities(uint64_t kept, std::string* error) {
  // Fails behind the last one that the kernel knows; without CAP_SETPCAP there is none to drop.
  for (int number = 0; prctl(PR_CAPBSET_READ, number, 0, 0, 0) >= 0; ++number)
    prctl(PR_CAPBSET_DROP, number, 0, 0, 0);
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {};
  if (syscall(SYS_capget, &header, sets) != 0)
    return Fail(error, "capabilities cannot be read", errno);
  for (unsigned k = 0; k < _LINUX_CAPABILITY_U32S_3; ++k) {
    sets[k].permitted &= static_cast<uint32_t>(kept >> (32 * k));
    sets[k].effective &= sets[k].permitted;
    sets[k].inheritable = 0;
  }
  return syscall(SYS_capset, &header, sets) == 0 ||
         Fail(error, "capabilities cannot be dropped", errno);
}

bool HasOneThread() {
#ifdef __SANITIZE_THREAD__
  return true;  // the sanitizer has a thread of its own
#else
  std::error_code code;
  const std::filesystem::directory_iterator threads("/proc/self/task", code);
  return code || std::distance(begin(threads), end(threads)) == 1;
#endif
}

}  // namespace

bool EnterSandbox(const SandboxNeeds& needs, std::string* error) {
  if (!HasOneThread()) {
    *error = "the backend has started threads, which Landlock would not hold for";
    return false;
  }
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return Fail(error, "no_new_privs", errno);
  bool has_landlock = false;
  return EnterLandlock(needs, &has_landlock, error) &&
         DropCapabilities(needs.capabilities, error) && FilterCalls(needs, has_landlock, error);
}

}  // namespace smolvm::sandbox
