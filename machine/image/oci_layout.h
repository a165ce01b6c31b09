// What the files of an OCI image layout say (OCI image specification, "Image Layout", "Image
// Manifest" and "Image Configuration"). Whoever made the image wrote them: anything may be in them.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "machine/image/unpack.h"

namespace smolvm::machine {

// Each throws Failure for what is not JSON or lacks what is asked for.
std::string ManifestDigest(std::string_view index);
std::string ConfigDigest(std::string_view manifest);
ImageConfig ParseConfig(std::string_view config);

// The file of a blob, which lies below `layout` whatever the digest is. Throws Failure for what is
// no digest ("sha256:" and hexadecimal digits, or another algorithm).
std::filesystem::path BlobPath(const std::filesystem::path& layout, const std::string& digest);

}  // namespace smolvm::machine
