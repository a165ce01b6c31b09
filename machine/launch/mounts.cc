#include "machine/launch/mounts.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "machine/util/failure.h"

namespace smolvm::machine {
namespace {

namespace fs = std::filesystem;

// What the machine's own file systems are mounted on.
constexpr const char* kReserved[] = {"/proc", "/sys", "/dev", "/opt/smolvm-cuda"};

std::string CheckGuestPath(const std::string& text, const std::string& guest) {
  if (guest.empty() || guest[0] != '/') {
    Fail("the mount '{}': the machine's side must be an absolute path", text);
  }
  const fs::path path = fs::path(guest).lexically_normal();
  std::string normal = path.string();
  if (normal.size() > 1 && normal.back() == '/') normal.pop_back();
  if (normal == "/") Fail("the mount '{}': the machine's root cannot be mounted over", text);
  for (const std::string reserved : kReserved) {
    if (normal == reserved || normal.rfind(reserved + "/", 0) == 0) {
      Fail("the mount '{}': {} is the machine's own", text, reserved);
    }
  }
  return normal;
}

}  // namespace

Share ParseMount(const std::string& text) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos || colon == 0) {
    Fail("the mount '{}' is not of the form HOST:GUEST[:ro]", text);
  }
  Share share;
  share.host = text.substr(0, colon);
  std::string guest = text.substr(colon + 1);
  if (const size_t option = guest.rfind(':'); option != std::string::npos) {
    const std::string word = guest.substr(option + 1);
    if (word != "ro" && word != "rw") {
      Fail("the mount '{}': '{}' is not an option; 'ro' and 'rw' are", text, word);
    }
    share.read_only = word == "ro";
    guest.resize(option);
  }
  if (share.host[0] != '/') {
    Fail("the mount '{}': the host's side must be an absolute path", text);
  }
  share.guest = CheckGuestPath(text, guest);
  struct stat status;
  if (stat(share.host.c_str(), &status) != 0) {
    Fail("the mount '{}': {}: {}", text, share.host, ErrnoText());
  }
  if (!S_ISDIR(status.st_mode) && !S_ISREG(status.st_mode)) {
    Fail("the mount '{}': {} is neither a folder nor a file", text, share.host);
  }
  share.is_file = S_ISREG(status.st_mode);
  const int access_mode = R_OK | (share.is_file ? 0 : X_OK) | (share.read_only ? 0 : W_OK);
  if (access(share.host.c_str(), access_mode) != 0) {
    Fail("the mount '{}': {}: {}{}", text, share.host, ErrnoText(),
         share.read_only || access(share.host.c_str(), R_OK) != 0
             ? ""
             : " (add ':ro' to mount it read-only)");
  }
  return share;
}

std::vector<Share> ParseMounts(const std::vector<std::string>& texts) {
  std::vector<Share> shares;
  for (const std::string& text : texts) shares.push_back(ParseMount(text));
  std::stable_sort(shares.begin(), shares.end(),
                   [](const Share& a, const Share& b) { return a.guest < b.guest; });
  for (size_t i = 1; i < shares.size(); ++i) {
    if (shares[i].guest == shares[i - 1].guest) Fail("{} is mounted twice", shares[i].guest);
  }
  return shares;
}

}  // namespace smolvm::machine
