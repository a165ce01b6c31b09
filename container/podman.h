#pragma once

#include <chrono>
#include <compare>
#include <optional>
#include <string>
#include <vector>

namespace smolvm::gpu {

// The podman that will start the container: which program, and what it says about itself.
struct Podman {
  std::string program = "podman";
  std::vector<std::string> global_options;  // such as --root=…; they precede podman's command
  std::chrono::milliseconds answer_limit = std::chrono::seconds(5);

  // program and global options, to which a command is appended.
  std::vector<std::string> CommandLine() const;
};

struct PodmanVersion {
  int major = 0;
  int minor = 0;

  friend auto operator<=>(const PodmanVersion&, const PodmanVersion&) = default;
  std::string ToString() const { return std::to_string(major) + "." + std::to_string(minor); }
};

// The first podman that resolves CDI names; an older one gets the raw recipes.
inline constexpr PodmanVersion kFirstPodmanWithCdi = {4, 1};
// The first one that reads engine.cdi_spec_dirs from containers.conf.
inline constexpr PodmanVersion kFirstPodmanWithSpecDirs = {5, 0};

// The CDI spec files that podman reports.
struct CdiSpecListing {
  // False when podman is missing, fails, hangs or says something else than a list of paths.
  bool answered = false;
  // False when there is no use in asking that podman anything else: it is missing, or it hangs.
  bool responsive = false;
  std::vector<std::string> files;
};
CdiSpecListing ListCdiSpecs(const Podman& podman);

// nullopt when podman does not tell.
std::optional<PodmanVersion> AskVersion(const Podman& podman);

}  // namespace smolvm::gpu
