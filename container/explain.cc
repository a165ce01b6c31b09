#include "container/explain.h"

#include <cctype>
#include <set>

#include "container/cdi.h"
#include "container/error.h"
#include "container/text.h"

namespace smolvm::gpu {
namespace {

// The devices of the vendor's kind that `text` names: "7" for "… nvidia.com/gpu=7, …".
std::set<std::string> NamedDevices(std::string_view text, GpuVendor vendor) {
  const std::string prefix = std::string(CdiKind(vendor)) + "=";
  std::set<std::string> names;
  for (std::size_t at = text.find(prefix); at != std::string_view::npos;
       at = text.find(prefix, at)) {
    at += prefix.size();
    std::size_t end = at;
    // What CDI allows in a device's name (SPEC.md).
    while (end < text.size() &&
           (std::isalnum(static_cast<unsigned char>(text[end])) ||
            std::string_view("_-.:").find(text[end]) != std::string_view::npos)) {
      ++end;
    }
    while (end > at && std::string_view("-.:").find(text[end - 1]) != std::string_view::npos) --end;
    if (end > at) names.emplace(text.substr(at, end - at));
  }
  return names;
}

// Whether `text` names exactly this path, and not one that only begins so.
bool NamesPath(std::string_view text, std::string_view path) {
  for (std::size_t at = text.find(path); at != std::string_view::npos;
       at = text.find(path, at + 1)) {
    const std::size_t end = at + path.size();
    const bool ends =
        end == text.size() || (!std::isalnum(static_cast<unsigned char>(text[end])) &&
                               std::string_view("/._-").find(text[end]) == std::string_view::npos);
    if (ends) return true;
  }
  return false;
}

std::string NoveltyOf(const std::string& file, const CdiSpecs& cdi) {
  const auto found = cdi.novelties.find(file);
  if (found == cdi.novelties.end()) return "";
  return "the CDI spec " + file + " (cdiVersion " +
         (found->second.version.empty() ? "missing" : found->second.version) +
         ") has fields that CDI 0.5.0 lacks: " + Join(found->second.fields, ", ") +
         ". A podman that does not know them refuses the whole spec and calls its devices "
         "unresolvable; podman 4 does. Have an older spec version written, or update podman";
}

// What is known of one device that podman's text names, or whose paths it names; "" when nothing
// is.
std::string OfDevice(std::string_view text, GpuVendor vendor, const std::string& name,
                     const CdiSpecs& cdi, const CdiSpecs::Kind& kind, const HostRoot& root) {
  const std::string problem = WhyNotUsable(vendor, name, kind, root);
  const auto device = kind.devices.find(name);
  if (!problem.empty() || device == kind.devices.end()) return problem;
  for (const std::string& path : device->second.needs) {
    if (NamesPath(text, path)) {
      return "podman's error is about " + path + ", which the CDI spec " + device->second.file +
             " names for " + std::string(CdiKind(vendor)) + "=" + name;
    }
  }
  return NoveltyOf(device->second.file, cdi);
}

// Devices that were asked for: podman names them, or the launcher passed them.
std::set<std::string> AskedFor(std::string_view text, GpuVendor vendor,
                               const std::vector<std::string>& passed) {
  std::set<std::string> names = NamedDevices(text, vendor);
  for (const std::string& word : passed) names.merge(NamedDevices(word, vendor));
  return names;
}

std::vector<std::string> Findings(std::string_view text, const CdiSpecs& cdi, const HostRoot& root,
                                  const std::vector<std::string>& passed) {
  std::set<std::string> findings;
  for (GpuVendor vendor : GPU_VENDORS) {
    const std::set<std::string> asked = AskedFor(text, vendor, passed);
    const CdiSpecs::Kind* kind = cdi.Declared(vendor);
    if (kind == nullptr) {
      if (!asked.empty()) {
        findings.insert("no CDI spec declares " + std::string(CdiKind(vendor)) + " (looked in " +
                        cdi.looked_in + ")");
      }
      continue;
    }
    for (const std::string& name : asked)
      findings.insert(OfDevice(text, vendor, name, cdi, *kind, root));
    if (!asked.empty()) continue;
    // Only paths are named: any device that needs one of them.
    for (const auto& [name, device] : kind->devices) {
      for (const std::string& path : device.needs) {
        if (NamesPath(text, path)) findings.insert(OfDevice(text, vendor, name, cdi, *kind, root));
      }
    }
  }
  for (const std::string& skipped : cdi.skipped) {
    if (!findings.empty()) findings.insert("passed over the CDI spec " + skipped);
  }
  findings.erase("");
  return {findings.begin(), findings.end()};
}

}  // namespace

std::optional<std::string> ExplainLaunchError(std::string_view podman_stderr, const Host& host,
                                              const std::vector<std::string>& passed) {
  const std::optional<std::string_view> hint = HintForLaunchError(podman_stderr);
  const bool other = hint && (*hint == kKeepGroupsHint || *hint == kNvidiaHookHint);
  const CdiSpecs cdi = other ? CdiSpecs() : LoadCdiSpecs(host);
  // Without a hint only a path that podman's own error and a spec name makes it a GPU matter.
  const bool is_error = podman_stderr.find("Error: ") != std::string_view::npos;
  const std::vector<std::string> findings =
      !other && (hint || is_error)
          ? Findings(podman_stderr, cdi, host.root, hint ? passed : std::vector<std::string>())
          : std::vector<std::string>();
  if (!hint && findings.empty()) return std::nullopt;
  std::string text;
  for (const std::string& finding : findings) text += finding + "\n";
  if (!passed.empty()) text += "podman was given: " + Join(passed, " ") + "\n";
  return text + std::string(hint.value_or(kStaleHint));
}

}  // namespace smolvm::gpu
