#include "host-daemon/emulation/image/select.h"

#include <fmt/format.h>

#include <optional>
#include <set>
#include <utility>

#include "host-daemon/emulation/image/linked_image.h"
#include "host-daemon/emulation/ptx/parse.h"
#include "protocol/image/fatbin.h"
#include "protocol/image/image.h"
#include "protocol/image/unpack.h"
#include "protocol/log/log.h"

namespace smolvm::emulation {
namespace {

char SuffixOf(const image::FatbinEntry& entry) {
  if ((entry.flags & image::kEntryArchSpecific) != 0) return 'a';
  return (entry.flags & image::kEntryFamily) != 0 ? 'f' : '\0';
}

std::string ArchitectureOf(const image::FatbinEntry& entry) {
  std::string name = std::to_string(entry.arch);
  if (const char suffix = SuffixOf(entry)) name += suffix;
  return name;
}

class Selector {
 public:
  explicit Selector(int compute_capability) : cc_(static_cast<uint32_t>(compute_capability)) {}

  // CUDA_SUCCESS and no text: the container has no entry at all.
  CUresult AddContainer(std::span<const std::byte> container, std::vector<PtxText>* texts,
                        std::string* error) {
    image::FatbinReader reader(container);
    image::FatbinEntry entry;
    std::optional<image::FatbinEntry> best;
    bool is_empty = true;
    while (reader.Next(&entry)) {
      is_empty = false;
      Note(entry);
      if (Suits(entry) && (!best || Rank(entry) > Rank(*best))) best = entry;
    }
    if (reader.damaged()) {
      *error = "the fatbin is damaged";
      return CUDA_ERROR_INVALID_IMAGE;
    }
    if (is_empty) return CUDA_SUCCESS;
    if (!best) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    PtxText text{.architecture = static_cast<int>(best->arch), .suffix = SuffixOf(*best)};
    if (!image::UnpackPtx(*best, &text.text, error)) return CUDA_ERROR_INVALID_IMAGE;
    texts->push_back(std::move(text));
    return CUDA_SUCCESS;
  }

  // Why no entry suits, and what to do about it.
  std::string Explain() const {
    return fmt::format(
        "no PTX that a device of compute capability {}.{} runs; the image holds: {}. Compile with "
        "-gencode arch=compute_{},code=compute_{} added{}",
        cc_ / 10, cc_ % 10,
        held_.empty() ? "nothing that is known" : fmt::format("{}", fmt::join(held_, ", ")), cc_,
        cc_,
        has_ptx_ ? ", or set SMOLVM_CUDA_EMULATION_CC (of a daemon: "
                   "--emulation-compute-capability) to a version that the PTX is for"
                 : "");
  }

  void NoteCubin() { held_.insert("a cubin (SASS)"); }

 private:
  void Note(const image::FatbinEntry& entry) {
    has_ptx_ = has_ptx_ || entry.kind == image::kEntryPtx;
    if (held_.size() > kMostNamed) return;
    if (entry.kind == image::kEntryPtx) held_.insert("PTX compute_" + ArchitectureOf(entry));
    if (entry.kind == image::kEntryElf) held_.insert("SASS sm_" + ArchitectureOf(entry));
    if (entry.kind == image::kEntryLtoIr) held_.insert("LTO-IR lto_" + ArchitectureOf(entry));
  }

  bool Suits(const image::FatbinEntry& entry) const {
    if (entry.kind != image::kEntryPtx || entry.arch > cc_) return false;
    if (IsTooNew(entry)) return false;
    switch (SuffixOf(entry)) {
      case 'a':
        return entry.arch == cc_;
      case 'f':
        return entry.arch / 10 == cc_ / 10;
      default:
        return true;
    }
  }

  // Written in a newer PTX ISA than the parser knows. Old toolkits leave the fields 0.
  static bool IsTooNew(const image::FatbinEntry& entry) {
    return entry.major * 10 + entry.minor > ptx::kNewestVersion;
  }

  // Newer architectures before older ones, and plain before family before one-architecture PTX.
  static uint32_t Rank(const image::FatbinEntry& entry) {
    const char suffix = SuffixOf(entry);
    return entry.arch * 4 + (suffix == 'a' ? 0 : suffix == 'f' ? 1 : 2);
  }

  static constexpr size_t kMostNamed = 32;

  uint32_t cc_;
  bool has_ptx_ = false;
  std::set<std::string> held_;
};

CUresult SelectFromWrapper(const void* image, Selector* selector, std::vector<PtxText>* texts,
                           std::string* error) {
  const std::optional<image::WrapperParts> parts = image::ReadWrapper(image);
  if (!parts) {
    *error = "the fatbin wrapper points to something that is not a fatbin";
    return CUDA_ERROR_INVALID_IMAGE;
  }
  const bool is_relocatable = parts->kind == image::Kind::kWrapperV2;
  for (size_t i = 0; i < parts->containers.size(); ++i) {
    const CUresult result = selector->AddContainer(parts->containers[i], texts, error);
    // The device-linked container holds what nvlink made of the others: SASS, as a rule, or PTX
    // that stands for all.
    if (is_relocatable && i == 0) {
      if (result == CUDA_SUCCESS && !texts->empty()) return CUDA_SUCCESS;
      if (result == CUDA_ERROR_NO_BINARY_FOR_GPU && parts->containers.size() > 1) continue;
    }
    if (result != CUDA_SUCCESS) return result;
  }
  return texts->empty() ? CUDA_ERROR_NO_BINARY_FOR_GPU : CUDA_SUCCESS;
}

// What cuLinkComplete made here; any other cubin is SASS.
CUresult SelectFromElf(std::span<const std::byte> image, Selector* selector,
                       std::vector<PtxText>* texts, std::string* error) {
  if (!IsLinkedImage(image)) {
    selector->NoteCubin();
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  std::vector<NamedPtx> sources;
  if (!ReadLinkedImage(image, &sources) || sources.empty()) {
    *error = "the linked image is damaged";
    return CUDA_ERROR_INVALID_IMAGE;
  }
  for (NamedPtx& source : sources)
    texts->push_back({.text = std::move(source.text), .name = std::move(source.name)});
  return CUDA_SUCCESS;
}

CUresult Select(const void* image, Selector* selector, std::vector<PtxText>* texts,
                std::string* error) {
  const image::Image measured = image::MeasureImage(image, image::kUnknownLimit);
  const auto* bytes = static_cast<const std::byte*>(image);
  switch (measured.kind) {
    case image::Kind::kPtx:
      texts->push_back({.text = std::string(static_cast<const char*>(image))});
      return CUDA_SUCCESS;
    case image::Kind::kContainer: {
      const CUresult result = selector->AddContainer({bytes, measured.bytes}, texts, error);
      return result == CUDA_SUCCESS && texts->empty() ? CUDA_ERROR_NO_BINARY_FOR_GPU : result;
    }
    case image::Kind::kWrapperV1:
    case image::Kind::kWrapperV2:
      return SelectFromWrapper(image, selector, texts, error);
    case image::Kind::kElf:
      return SelectFromElf({bytes, measured.bytes}, selector, texts, error);
    case image::Kind::kInvalid:
      break;
  }
  *error = "the image is neither PTX, nor a fatbin, nor a cubin";
  return CUDA_ERROR_INVALID_IMAGE;
}

}  // namespace

CUresult SelectPtx(const void* image, int compute_capability, std::vector<PtxText>* texts,
                   std::string* error) {
  texts->clear();
  error->clear();
  Selector selector(compute_capability);
  const CUresult result = Select(image, &selector, texts, error);
  if (result == CUDA_ERROR_NO_BINARY_FOR_GPU) *error = selector.Explain();
  if (result != CUDA_SUCCESS) {
    log::Error("event=image_refused code={} reason={}", static_cast<int>(result),
               log::Quote(*error));
  }
  return result;
}

}  // namespace smolvm::emulation
