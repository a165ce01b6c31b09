#include "container/cdi.h"

#include <algorithm>
#include <utility>

#include "container/cdi_spec.h"
#include "container/containers_conf.h"
#include "container/text.h"

namespace smolvm::gpu {
namespace {

struct SpecFiles {
  std::vector<std::string> files;
  std::string looked_in;
};

SpecFiles FilesIn(const std::vector<std::string>& directories, const HostRoot& root) {
  SpecFiles found{
      {}, directories.empty() ? "no directory (cdi_spec_dirs is empty)" : Join(directories, ", ")};
  for (const std::string& directory : directories) {
    for (const std::string& name : root.List(directory).value_or(std::vector<std::string>())) {
      if (CdiFormatOf(name)) found.files.push_back(directory + "/" + name);
    }
  }
  return found;
}

// Asks podman at most twice. `version` is filled in when it had to be asked for.
SpecFiles FindSpecFiles(const Host& host, const CdiSpecListing& listing,
                        std::optional<PodmanVersion>& version) {
  if (!listing.files.empty()) return {listing.files, "the specs that podman lists"};
  std::optional<std::vector<std::string>> configured = ConfiguredCdiDirectories(host.root);
  if (configured && !listing.answered && listing.responsive) {
    version = AskVersion(host.podman);
    if (version && *version < kFirstPodmanWithSpecDirs) configured.reset();
  }
  return FilesIn(configured.value_or(std::vector<std::string>{"/etc/cdi", "/var/run/cdi"}),
                 host.root);
}

void ReadSpec(const HostRoot& root, const std::string& file, std::size_t& bytes_left,
              CdiSpecs& specs) {
  const std::optional<CdiFormat> format = CdiFormatOf(file);
  if (!format) {
    specs.skipped.push_back(file + ": neither .json nor .yaml");
    return;
  }
  const HostRoot::Text text = root.Read(file, std::min(kLargestCdiSpec, bytes_left));
  if (!text.ok()) {
    specs.skipped.push_back(file + ": " + text.error);
    return;
  }
  bytes_left -= text.text.size();
  CdiSpecOrError parsed = ParseCdiSpec(text.text, *format);
  if (!parsed.spec) {
    specs.skipped.push_back(file + ": " + parsed.error);
    return;
  }
  CdiSpecs::Kind& kind = specs.kinds[parsed.spec->kind];
  kind.files.push_back(file);
  kind.devices.insert(parsed.spec->devices.begin(), parsed.spec->devices.end());
}

bool DeclaresAnyVendor(const CdiSpecs& specs) {
  return std::any_of(GPU_VENDORS.begin(), GPU_VENDORS.end(),
                     [&](GpuVendor vendor) { return specs.Declared(vendor) != nullptr; });
}

}  // namespace

const CdiSpecs::Kind* CdiSpecs::Declared(GpuVendor vendor) const {
  const auto kind = kinds.find(CdiKind(vendor));
  return kind == kinds.end() ? nullptr : &kind->second;
}

const CdiSpecs::Kind* CdiSpecs::Usable(GpuVendor vendor) const {
  return too_old ? nullptr : Declared(vendor);
}

CdiSpecs LoadCdiSpecs(const Host& host) {
  const CdiSpecListing listing = ListCdiSpecs(host.podman);
  std::optional<PodmanVersion> version;
  SpecFiles found = FindSpecFiles(host, listing, version);
  CdiSpecs specs;
  specs.looked_in = std::move(found.looked_in);
  if (found.files.size() > kMostCdiFiles) {
    specs.skipped.push_back(std::to_string(found.files.size() - kMostCdiFiles) +
                            " files: more than " + std::to_string(kMostCdiFiles) + " specs");
    found.files.resize(kMostCdiFiles);
  }
  std::size_t bytes_left = kMostCdiBytes;
  for (const std::string& file : found.files) ReadSpec(host.root, file, bytes_left, specs);
  // A podman that lists its specs knows CDI; the version is worth asking for only where it matters.
  if (!listing.answered && listing.responsive && DeclaresAnyVendor(specs)) {
    if (!version) version = AskVersion(host.podman);
    if (version && *version < kFirstPodmanWithCdi) specs.too_old = version;
  }
  return specs;
}

void WarnOfSkippedSpecs(const CdiSpecs& specs, const Host& host) {
  constexpr std::size_t kNamed = 3;
  for (std::size_t i = 0; i < std::min(kNamed, specs.skipped.size()); ++i) {
    host.warn("passed over the CDI spec " + specs.skipped[i]);
  }
  if (specs.skipped.size() > kNamed) {
    host.warn("passed over " + std::to_string(specs.skipped.size() - kNamed) +
              " more CDI specs that cannot be read");
  }
}

}  // namespace smolvm::gpu
