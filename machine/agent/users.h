// Finds a user in the guest's /etc/passwd and /etc/group. The agent is static, so libc's own
// look-ups (which load libraries of the image) are not to be used.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace smolvm::agent {

struct User {
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;
  std::string home = "/";
};

// `text` is "", a name or a number, each with ":group" or without. Nothing when it is not known.
std::optional<User> FindUser(const std::string& text, const std::string& passwd,
                             const std::string& group);

}  // namespace smolvm::agent
