#include "protocol/image/kernel_params.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "protocol/image/elf_sections.h"
#include "protocol/image/fatbin.h"
#include "protocol/image/image.h"

namespace smolvm::image {
namespace {

constexpr std::string_view kInfoSection = ".nv.info.";

enum Format : uint8_t { kValue16 = 3, kSized = 4 };
enum Attribute : uint8_t { kParamInfo = 0x17, kCbankParamSize = 0x19, kParamInfoV2 = 0x45 };

constexpr size_t kParamInfoBytes = 12;
// The whole block may end behind its last parameter, by no more than an alignment.
constexpr uint32_t kMaxPadding = 16;

uint16_t Load16(std::span<const std::byte> bytes, size_t offset) {
  uint16_t value;
  memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

uint32_t Load32(std::span<const std::byte> bytes, size_t offset) {
  uint32_t value;
  memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

struct NumberedParam {
  uint16_t ordinal;
  KernelParam param;
};

NumberedParam ReadParam(uint8_t attribute, std::span<const std::byte> payload) {
  const uint32_t size = attribute == kParamInfo ? Load32(payload, 8) >> 18 : Load16(payload, 8);
  return {Load16(payload, 4), {Load16(payload, 6), size}};
}

// Every ordinal once, one behind the other, and the block filled.
std::optional<KernelParams> Ordered(std::vector<NumberedParam> numbered, uint32_t block_bytes) {
  std::sort(numbered.begin(), numbered.end(),
            [](const auto& a, const auto& b) { return a.ordinal < b.ordinal; });
  KernelParams params;
  uint32_t end = 0;
  for (const NumberedParam& next : numbered) {
    if (next.ordinal != params.size() || next.param.offset < end) return std::nullopt;
    end = next.param.offset + next.param.size;
    params.push_back(next.param);
  }
  if (end > block_bytes || block_bytes - end >= kMaxPadding || end > kMaxKernelParamBytes)
    return std::nullopt;
  return params;
}

// Gathers what the parts of an image say.
class Gatherer {
 public:
  void AddCubin(std::span<const std::byte> elf) {
    ForEachSection(elf, [&](std::string_view name, std::span<const std::byte> bytes) {
      if (name.starts_with(kInfoSection) && HasRoom())
        Merge(std::string(name.substr(kInfoSection.size())), ReadKernelInfo(bytes));
    });
  }
  void AddText(std::span<const std::byte> bytes) {
    const char* text = reinterpret_cast<const char*>(bytes.data());
    const std::string_view ptx(text, strnlen(text, bytes.size()));
    for (const auto& [name, params] : ReadPtxKernelParams(ptx)) Merge(name, params);
  }
  void AddContainer(std::span<const std::byte> container) {
    FatbinReader reader(container);
    for (FatbinEntry entry; reader.Next(&entry);) {
      if (entry.compressed_bytes != 0) continue;
      if (entry.kind == kEntryElf) AddCubin(entry.payload);
      if (entry.kind == kEntryPtx) AddText(entry.payload);
    }
  }
  KernelParamsByName Take() { return std::move(all_); }

 private:
  bool HasRoom() const { return all_.size() < kMaxKernels && params_ < kMaxParamsInAll; }
  // One that is known already must be the same.
  void Merge(const std::string& name, std::optional<KernelParams> params) {
    const auto known = all_.find(name);
    if (known != all_.end()) {
      if (known->second != params) known->second.reset();
    } else if (HasRoom()) {
      params_ += params ? params->size() : 0;
      all_.emplace(name, std::move(params));
    }
  }

  KernelParamsByName all_;
  size_t params_ = 0;
};

}  // namespace

std::optional<KernelParams> ReadKernelInfo(std::span<const std::byte> attributes) {
  std::vector<NumberedParam> params;
  uint32_t block_bytes = 0;
  while (!attributes.empty()) {
    if (attributes.size() < 4) return std::nullopt;
    const auto format = static_cast<uint8_t>(attributes[0]);
    const auto attribute = static_cast<uint8_t>(attributes[1]);
    const uint16_t value = Load16(attributes, 2);
    attributes = attributes.subspan(4);
    if (format == kValue16 && attribute == kCbankParamSize) block_bytes = value;
    if (format != kSized) continue;
    if (value > attributes.size()) return std::nullopt;
    if (attribute == kParamInfo || attribute == kParamInfoV2) {
      if (value != kParamInfoBytes) return std::nullopt;
      params.push_back(ReadParam(attribute, attributes));
    }
    attributes = attributes.subspan(value);
  }
  return Ordered(std::move(params), block_bytes);
}

KernelParamsByName ReadKernelParams(std::span<const std::byte> flat) {
  Gatherer gatherer;
  const Kind kind = MeasureImage(flat.data(), flat.size()).kind;
  if (kind == Kind::kElf) gatherer.AddCubin(flat);
  if (kind == Kind::kPtx) gatherer.AddText(flat);
  // A wrapper's containers follow each other (Flatten).
  for (size_t bytes; kind == Kind::kContainer && (bytes = ContainerBytes(flat)) != 0;) {
    gatherer.AddContainer(flat.first(bytes));
    flat = flat.subspan(std::min(flat.size(), (bytes + 7) / 8 * 8));
  }
  return gatherer.Take();
}

}  // namespace smolvm::image
