// From each kind of source to an unpacked root file system.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "machine/image/expansion.h"
#include "machine/image/source.h"
#include "machine/util/failure.h"

namespace smolvm::machine {

// What an OCI image says about its programs.
struct ImageConfig {
  std::vector<std::string> env, entrypoint, command;
  std::string workdir, user;
};

// No registry answered; the default image has a substitute then.
class RegistryUnreachable : public Failure {
 public:
  using Failure::Failure;
};

// Copies an image to an OCI layout at `layout` (tag "img") and returns its digest. Throws
// RegistryUnreachable, or Failure with the registry's own reason.
std::string CopyToLayout(const ImageSource& source, const std::filesystem::path& layout,
                         const Expansion& expansion);
ImageConfig ReadImageConfig(const std::filesystem::path& layout);
void UnpackLayout(const std::filesystem::path& layout, const std::filesystem::path& tree,
                  const Expansion& expansion);

void UnpackTarball(const std::filesystem::path& archive, const std::filesystem::path& tree,
                   const Expansion& expansion);
void MakeDebianTree(const std::string& suite, const std::filesystem::path& tree);

// skopeo's last message without its decoration; a hint is added for a rate limit.
std::string ExplainPullFailure(const std::string& image, const std::string& skopeo_stderr);
bool MeansUnreachable(const std::string& skopeo_stderr);

}  // namespace smolvm::machine
