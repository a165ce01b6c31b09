#include "machine/image/oci_layout.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace smolvm::machine {
namespace {

using Json = nlohmann::json;

Json Parse(std::string_view text, const char* what) {
  try {
    return Json::parse(text);
  } catch (const Json::exception& error) {
    Fail("the image's {} is damaged: {}", what, error.what());
  }
}

// The string at `pointer`, or "".
std::string TextAt(const Json& json, const char* pointer) {
  const Json::json_pointer at(pointer);
  return json.contains(at) && json[at].is_string() ? json[at].get<std::string>() : "";
}

std::vector<std::string> Strings(const Json& config, const char* key) {
  std::vector<std::string> list;
  if (!config.contains(key) || !config[key].is_array()) return list;
  for (const auto& item : config[key]) {
    if (item.is_string()) list.push_back(item);
  }
  return list;
}

}  // namespace

std::string ManifestDigest(std::string_view index) {
  std::string digest = TextAt(Parse(index, "index"), "/manifests/0/digest");
  if (digest.empty()) Fail("the image has no manifest");
  return digest;
}

std::string ConfigDigest(std::string_view manifest) {
  std::string digest = TextAt(Parse(manifest, "manifest"), "/config/digest");
  if (digest.empty()) Fail("the image's manifest names no configuration");
  return digest;
}

ImageConfig ParseConfig(std::string_view text) {
  const Json json = Parse(text, "configuration");
  ImageConfig config;
  if (!json.contains("config") || !json["config"].is_object()) return config;
  const Json& section = json["config"];
  config.env = Strings(section, "Env");
  config.entrypoint = Strings(section, "Entrypoint");
  config.command = Strings(section, "Cmd");
  config.workdir = TextAt(section, "/WorkingDir");
  config.user = TextAt(section, "/User");
  return config;
}

std::filesystem::path BlobPath(const std::filesystem::path& layout, const std::string& digest) {
  // OCI image specification, "Digests": algorithm ":" encoded, both of a few plain characters.
  // Neither a slash nor a name of dots is among them.
  const auto is_plain = [](std::string_view text) {
    return !text.empty() && text[0] != '.' && std::all_of(text.begin(), text.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             std::string_view("+._-=").find(c) != std::string_view::npos;
    });
  };
  const size_t colon = digest.find(':');
  const std::string algorithm = digest.substr(0, colon);
  const std::string hash = colon == std::string::npos ? "" : digest.substr(colon + 1);
  if (!is_plain(algorithm) || !is_plain(hash)) Fail("the image has a bad digest");
  return layout / "blobs" / algorithm / hash;
}

}  // namespace smolvm::machine
