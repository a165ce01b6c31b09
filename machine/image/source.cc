#include "machine/image/source.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <sstream>

#include "machine/util/failure.h"
#include "machine/util/tool.h"

namespace smolvm::machine {
namespace {

namespace fs = std::filesystem;

constexpr char kDebian[] = "debian";

bool LooksLikePath(const std::string& text) {
  return text.rfind("/", 0) == 0 || text.rfind("./", 0) == 0 || text.rfind("../", 0) == 0 ||
         text == "." || text == "..";
}

// RunTool keeps the end of a long output; the names that tell a kind may be at either end, so the
// list is cut down on the way.
std::vector<std::string> TopNames(const fs::path& archive) {
  const ToolResult list = RunTool({"tar", "-tf", archive.string(), "--exclude=*/*/*"},
                                  {.doing = "reading " + archive.string()});
  if (list.status != 0) {
    Fail("the image {} is neither a folder nor a tar archive that can be read: {}",
         archive.string(), list.Reason());
  }
  std::vector<std::string> names;
  std::istringstream stream(list.out);
  for (std::string line; std::getline(stream, line);) names.push_back(line);
  return names;
}

ImageSource FindPath(const std::string& argument) {
  ImageSource source;
  source.name = argument;
  source.path = fs::absolute(argument).lexically_normal();
  if (access(source.path.c_str(), R_OK) != 0) {
    Fail("the image {} cannot be read: {}", argument, ErrnoText());
  }
  if (fs::is_directory(source.path)) {
    source.kind = fs::exists(source.path / "oci-layout") && fs::exists(source.path / "index.json")
                      ? ImageKind::kOciFolder
                      : ImageKind::kFolder;
    if (fs::is_empty(source.path)) Fail("the image {} is an empty folder", argument);
  } else if (fs::is_regular_file(source.path)) {
    source.kind = ArchiveKind(TopNames(source.path));
  } else {
    Fail("the image {} is neither a folder nor a file", argument);
  }
  return source;
}

void CheckReference(const std::string& text) {
  const bool plain = std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return c < 128 && (std::isalnum(c) || std::string_view("./:@_-").find(c) != std::string::npos);
  });
  if (text.empty() || !plain || !std::isalnum(static_cast<unsigned char>(text[0]))) {
    Fail(
        "'{}' is not an image: a registry reference, an archive (./x.tar), a folder (./rootfs/) "
        "or 'debian' is wanted",
        text);
  }
}

}  // namespace

ImageKind ArchiveKind(const std::vector<std::string>& names) {
  const auto has = [&](const std::string& name) {
    return std::any_of(names.begin(), names.end(), [&](const std::string& entry) {
      return entry == name || entry == "./" + name;
    });
  };
  if (has("oci-layout") && has("index.json")) return ImageKind::kOciArchive;
  if (has("manifest.json")) return ImageKind::kDockerArchive;
  return ImageKind::kTarball;
}

ImageSource FindImage(const std::string& argument) {
  if (LooksLikePath(argument)) return FindPath(argument);
  ImageSource source;
  source.name = argument;
  const std::string prefix = std::string(kDebian) + "/";
  if (argument == kDebian || argument.rfind(prefix, 0) == 0) {
    source.kind = ImageKind::kDebian;
    source.suite = argument == kDebian ? "bookworm" : argument.substr(prefix.size());
    const bool plain = !source.suite.empty() &&
                       std::all_of(source.suite.begin(), source.suite.end(),
                                   [](unsigned char c) { return std::isalnum(c) || c == '-'; });
    if (!plain || source.suite[0] == '-') Fail("'{}' is not a Debian suite", source.suite);
    return source;
  }
  CheckReference(argument);
  return source;
}

}  // namespace smolvm::machine
