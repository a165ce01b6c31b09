// What an --image argument names.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace smolvm::machine {

inline constexpr char kDefaultImage[] = "python:3.12-slim";

enum class ImageKind {
  kRegistry,       // a reference, for skopeo's docker: transport
  kDebian,         // "debian", "debian/SUITE": a tree made with mmdebstrap
  kFolder,         // an unpacked root file system
  kOciFolder,      // an OCI layout
  kOciArchive,     // a tar file of one
  kDockerArchive,  // what `docker save` writes
  kTarball,        // a tar file of a root file system
};

struct ImageSource {
  ImageKind kind = ImageKind::kRegistry;
  std::string name;            // as given
  std::filesystem::path path;  // of folders and files, absolute
  std::string suite;           // of Debian
};

// Looks at what the argument names; files are opened to tell their kind. Throws Failure for what is
// not there or not readable.
ImageSource FindImage(const std::string& argument);

// The kind of a tar file, from the names in it.
ImageKind ArchiveKind(const std::vector<std::string>& names);

}  // namespace smolvm::machine
