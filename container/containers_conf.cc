#include "container/containers_conf.h"

#include <unistd.h>

#include <cstdlib>
#include <string_view>
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

namespace smolvm::gpu {
namespace {

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

void AddWithDropIns(const HostRoot& root, const std::string& file,
                    std::vector<std::string>& files) {
  files.push_back(file);
  for (const std::string& name : root.List(file + ".d").value_or(std::vector<std::string>())) {
    if (name.ends_with(".conf")) files.push_back(file + ".d/" + name);
  }
}

std::vector<std::string> FilesThatApply(const HostRoot& root) {
  std::vector<std::string> files;
  if (const std::string only = Environment("CONTAINERS_CONF"); !only.empty()) {
    files.push_back(only);
  } else {
    files.push_back("/usr/share/containers/containers.conf");
    AddWithDropIns(root, "/etc/containers/containers.conf", files);
    std::string config = Environment("XDG_CONFIG_HOME");
    if (config.empty()) config = Environment("HOME") + "/.config";
    if (geteuid() != 0) AddWithDropIns(root, config + "/containers/containers.conf", files);
  }
  const std::string last = Environment("CONTAINERS_CONF_OVERRIDE");
  if (!last.empty()) files.push_back(last);
  return files;
}

// `[…, {append=true}]` adds to what earlier files say; otherwise the list replaces it.
void Apply(const toml::array& setting, std::optional<std::vector<std::string>>& directories) {
  std::vector<std::string> listed;
  bool append = false;
  for (const toml::node& item : setting) {
    if (const auto* text = item.as_string()) listed.push_back(text->get());
    if (const auto* table = item.as_table()) append = (*table)["append"].value_or(false);
  }
  if (append && directories) {
    directories->insert(directories->end(), listed.begin(), listed.end());
  } else {
    directories = std::move(listed);
  }
}

}  // namespace

std::optional<std::vector<std::string>> ConfiguredCdiDirectories(const HostRoot& root) {
  constexpr std::string_view kKey = "cdi_spec_dirs";
  std::optional<std::vector<std::string>> directories;
  for (const std::string& file : FilesThatApply(root)) {
    const HostRoot::Text conf = root.Read(file, 1 << 20);
    if (conf.text.find(kKey) == std::string::npos) continue;  // saves parsing the usual file
    const toml::parse_result parsed = toml::parse(conf.text);
    if (!parsed) continue;
    if (const toml::array* setting = parsed.table()["engine"][kKey].as_array()) {
      Apply(*setting, directories);
    }
  }
  return directories;
}

}  // namespace smolvm::gpu
