#include "container/podman.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "container/process.h"

namespace smolvm::gpu {
namespace {

ProgramOutput Ask(const Podman& podman, std::initializer_list<std::string> command) {
  std::vector<std::string> argv = podman.CommandLine();
  argv.insert(argv.end(), command);
  return RunForOutput(argv, podman.answer_limit);
}

}  // namespace

std::vector<std::string> Podman::CommandLine() const {
  std::vector<std::string> argv = {program};
  argv.insert(argv.end(), global_options.begin(), global_options.end());
  return argv;
}

CdiSpecListing ListCdiSpecs(const Podman& podman) {
  const ProgramOutput out = Ask(podman, {"info", "--format", "{{json .Host.CDISpecs}}"});
  CdiSpecListing listing;
  listing.responsive = out.end == ProgramOutput::End::kExited;
  if (!out.succeeded()) return listing;
  const nlohmann::json answer = nlohmann::json::parse(out.text, nullptr, false);
  if (answer.is_null()) {  // podman's spelling of an empty list
    listing.answered = true;
    return listing;
  }
  if (!answer.is_array()) return listing;
  for (const nlohmann::json& file : answer) {
    if (!file.is_string()) return CdiSpecListing{.responsive = true};
    listing.files.push_back(file.get<std::string>());
  }
  listing.answered = true;
  return listing;
}

std::optional<PodmanVersion> AskVersion(const Podman& podman) {
  const ProgramOutput out = Ask(podman, {"--version"});
  PodmanVersion version;
  if (!out.succeeded() ||
      std::sscanf(out.text.c_str(), "podman version %d.%d", &version.major, &version.minor) != 2) {
    return std::nullopt;
  }
  return version;
}

}  // namespace smolvm::gpu
