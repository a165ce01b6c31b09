#include "machine/agent/users.h"

#include <charconv>
#include <string_view>

namespace smolvm::agent {
namespace {

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::optional<uint32_t> Number(std::string_view text) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<User> FindUser(const std::string& text, const std::string& passwd,
                             const std::string& group) {
  const size_t colon = text.find(':');
  const std::string_view name = std::string_view(text).substr(0, colon);
  const std::string_view group_name =
      colon == std::string::npos ? std::string_view() : std::string_view(text).substr(colon + 1);
  User user;
  const std::optional<uint32_t> uid = name.empty() ? std::optional<uint32_t>(0) : Number(name);
  bool found = uid.has_value();
  if (uid) user.uid = *uid;
  std::string_view login;
  for (const std::string_view line : Split(passwd, '\n')) {
    const auto fields = Split(line, ':');
    if (fields.size() < 6) continue;
    if (uid ? Number(fields[2]) != uid : fields[0] != name) continue;
    const auto line_uid = Number(fields[2]), line_gid = Number(fields[3]);
    if (!line_uid || !line_gid) continue;
    user.uid = *line_uid;
    user.gid = *line_gid;
    user.home = fields[5];
    login = fields[0];
    found = true;
    break;
  }
  if (!found) return std::nullopt;
  bool group_found = group_name.empty();
  if (const auto gid = Number(group_name)) {
    user.gid = *gid;
    group_found = true;
  }
  for (const std::string_view line : Split(group, '\n')) {
    const auto fields = Split(line, ':');
    if (fields.size() < 4) continue;
    const auto gid = Number(fields[2]);
    if (!gid) continue;
    if (!group_found && fields[0] == group_name) {
      user.gid = *gid;
      group_found = true;
    }
    if (login.empty()) continue;
    for (const std::string_view member : Split(fields[3], ',')) {
      if (member == login) user.groups.push_back(*gid);
    }
  }
  if (!group_found) return std::nullopt;
  return user;
}

}  // namespace smolvm::agent
