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

std::string_view FolderOf(std::string_view file) { return file.substr(0, file.rfind('/')); }

// A later folder's declaration replaces an earlier one's; within one folder both are lost, whatever
// later ones say (the CDI library's Cache.refresh).
void AddDevice(const std::string& file, const CdiSpec& spec, const CdiDevice& declared,
               CdiSpecs::Kind& kind) {
  CdiSpecs::Device& device = kind.devices[declared.name];
  if (!device.file.empty() && FolderOf(device.file) == FolderOf(file)) {
    device.twins.insert({device.file, file});
  }
  device.file = file;
  device.needs = spec.needs;
  device.needs.insert(device.needs.end(), declared.needs.begin(), declared.needs.end());
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
  const CdiSpec& spec = *parsed.spec;
  CdiSpecs::Kind& kind = specs.kinds[spec.kind];
  kind.files.push_back(file);
  for (const CdiDevice& device : spec.devices) AddDevice(file, spec, device, kind);
  if (!spec.late_fields.empty()) specs.novelties[file] = {spec.version, spec.late_fields};
}

bool DeclaresAnyVendor(const CdiSpecs& specs) {
  return std::any_of(GPU_VENDORS.begin(), GPU_VENDORS.end(),
                     [&](GpuVendor vendor) { return specs.Declared(vendor) != nullptr; });
}

}  // namespace

const std::string_view kSpecHint =
    "Have the vendor's tool write the spec anew, as after each driver update, and remove older "
    "ones:\n"
    "  NVIDIA  sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml\n"
    "  AMD     sudo amd-ctk cdi generate --output=/etc/cdi/amd.json\n"
    "  Intel   a CDI spec for intel.com/gpu in /etc/cdi, or none for the render nodes";

std::vector<std::string> CdiSpecs::Kind::Names() const {
  std::vector<std::string> names;
  names.reserve(devices.size());
  for (const auto& [name, device] : devices) names.push_back(name);
  return names;
}

std::string WhyNotUsable(GpuVendor vendor, std::string_view name, const CdiSpecs::Kind& kind,
                         const HostRoot& root) {
  const std::string full = std::string(CdiKind(vendor)) + "=" + std::string(name);
  const std::string files = Join(kind.files, ", ");
  if (kind.devices.empty()) {
    return "the CDI specs of " + std::string(CdiKind(vendor)) + " declare no device at all (" +
           files + "), and podman passes over such specs";
  }
  const auto found = kind.devices.find(name);
  if (found == kind.devices.end()) {
    return "the CDI specs declare no device " + full + "; they declare " +
           Join(kind.Names(), ", ") + " (" + files + ")";
  }
  const CdiSpecs::Device& device = found->second;
  if (device.twins.size() == 1) {
    return "the CDI spec " + device.file + " declares " + full +
           " twice, and podman refuses such a spec";
  }
  if (!device.twins.empty()) {
    const std::vector<std::string> twins(device.twins.begin(), device.twins.end());
    return "the device " + full + " is declared by more than one CDI spec of a folder (" +
           Join(twins, ", ") + "), and podman resolves none of them: remove all but one";
  }
  std::vector<std::string> gone;
  for (const std::string& path : device.needs) {
    const bool known = std::find(gone.begin(), gone.end(), path) != gone.end();
    if (!known && !root.Exists(path)) gone.push_back(path);
  }
  if (gone.empty()) return "";
  const std::string more =
      gone.size() > 1 ? " and " + std::to_string(gone.size() - 1) + " more" : std::string();
  return "the CDI spec " + device.file + " is stale: for " + full + " it names " + gone.front() +
         more + ", which this host does not have (any more)";
}

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
