// OCI images: skopeo fetches, umoci unpacks.
#include <unistd.h>

#include <cstdlib>

#include "machine/image/oci_layout.h"
#include "machine/image/unpack.h"
#include "machine/util/files.h"
#include "machine/util/tool.h"

namespace smolvm::machine {
namespace {

namespace fs = std::filesystem;

constexpr char kTag[] = "img";
constexpr size_t kMaxJson = 16 << 20;

std::string SkopeoSource(const ImageSource& source) {
  switch (source.kind) {
    case ImageKind::kOciFolder:
      return "oci:" + source.path.string();
    case ImageKind::kOciArchive:
      return "oci-archive:" + source.path.string();
    case ImageKind::kDockerArchive:
      return "docker-archive:" + source.path.string();
    default:
      return "docker://" + source.name;
  }
}

// A registry on the loopback that tests (or developers) run without certificates.
bool MayBeInsecure(const std::string& image) {
  const char* registry = std::getenv("SMOLVM_INSECURE_REGISTRY");
  return registry != nullptr && registry[0] != '\0' &&
         image.rfind(std::string(registry) + "/", 0) == 0;
}

// The text of msg="..." in a line of skopeo's log, or the whole line.
std::string MessageOf(const std::string& line) {
  const size_t at = line.find("msg=\"");
  if (at == std::string::npos) return line;
  std::string message;
  for (size_t i = at + 5; i < line.size() && line[i] != '"'; ++i) {
    if (line[i] == '\\' && i + 1 < line.size()) ++i;
    message += line[i];
  }
  return message;
}

std::string LastLine(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  const size_t line = text.rfind('\n');
  return line == std::string::npos ? text : text.substr(line + 1);
}

std::string Read(const fs::path& path) { return ReadFile(path, kMaxJson); }

}  // namespace

bool MeansUnreachable(const std::string& text) {
  for (const char* sign :
       {"no such host", "connection refused", "i/o timeout", "network is unreachable",
        "no route to host", "TLS handshake timeout", "server misbehaving",
        "Temporary failure in name resolution", "context deadline exceeded", "proxyconnect"}) {
    if (text.find(sign) != std::string::npos) return true;
  }
  return false;
}

std::string ExplainPullFailure(const std::string& image, const std::string& skopeo_stderr) {
  std::string text =
      fmt::format("the image {} cannot be had: {}", image, MessageOf(LastLine(skopeo_stderr)));
  if (skopeo_stderr.find("TOOMANYREQUESTS") != std::string::npos ||
      skopeo_stderr.find("toomanyrequests") != std::string::npos) {
    text += fmt::format(
        "; this is the registry's limit on anonymous pulls: name a mirror, such as --image "
        "mirror.gcr.io/library/{}",
        image.substr(image.rfind('/') + 1));
  }
  return text;
}

std::string CopyToLayout(const ImageSource& source, const fs::path& layout,
                         const Expansion& expansion) {
  std::vector<std::string> argv = {"skopeo", "--override-os", "linux", "copy", "--quiet"};
  if (access("/etc/containers/policy.json", R_OK) != 0) {
    argv.insert(argv.begin() + 1, "--insecure-policy");  // skopeo refuses to run without a policy
  }
  if (source.kind == ImageKind::kRegistry) {
    argv.insert(argv.end(), {"--retry-times", "2"});
    if (MayBeInsecure(source.name)) argv.push_back("--src-tls-verify=false");
  }
  argv.insert(argv.end(), {SkopeoSource(source), fmt::format("oci:{}:{}", layout.string(), kTag)});
  const char* verb = source.kind == ImageKind::kRegistry ? "pulling" : "reading";
  const ToolResult result = RunTool(argv, {.doing = fmt::format("{} {}", verb, source.name),
                                           .problem = [&] { return expansion.Problem(); }});
  if (result.status != 0) {
    const std::string why = ExplainPullFailure(source.name, result.err);
    if (MeansUnreachable(result.err)) throw RegistryUnreachable(why);
    throw Failure(why);
  }
  return ManifestDigest(Read(layout / "index.json"));
}

ImageConfig ReadImageConfig(const fs::path& layout) {
  const std::string manifest = ManifestDigest(Read(layout / "index.json"));
  const std::string config = ConfigDigest(Read(BlobPath(layout, manifest)));
  return ParseConfig(Read(BlobPath(layout, config)));
}

void UnpackLayout(const fs::path& layout, const fs::path& tree, const Expansion& expansion) {
  std::vector<std::string> argv = {"umoci", "raw", "unpack"};
  if (geteuid() != 0) argv.push_back("--rootless");
  argv.insert(argv.end(), {"--image", fmt::format("{}:{}", layout.string(), kTag), tree.string()});
  MustRun(argv, {.doing = "unpacking the image", .problem = [&] { return expansion.Problem(); }});
}

}  // namespace smolvm::machine
