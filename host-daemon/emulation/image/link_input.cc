#include "host-daemon/emulation/image/link_input.h"

#include <fmt/format.h>

#include <algorithm>

#include "host-daemon/emulation/image/archive.h"
#include "host-daemon/emulation/image/select.h"
#include "protocol/image/elf_sections.h"
#include "protocol/image/fatbin.h"
#include "protocol/image/image.h"

namespace smolvm::emulation {
namespace {

using Bytes = std::span<const std::byte>;

// Where compilers put a host object's device code: containers, one after the other.
constexpr std::string_view kFatbinSection = ".nv_fatbin";
constexpr std::string_view kRelocatableSection = "__nv_relfatbin";
constexpr size_t kAlignment = 8;

// Members that a library may have; libcudadevrt has one, the largest of NVIDIA's some thousand.
constexpr size_t kMaxMembers = 1 << 16;

CUresult ReadContainer(Bytes data, std::string_view name, int cc, InputPtx* input,
                       std::string* error) {
  if (!image::IsWholeContainer(data)) {
    *error = "not a whole fatbin";
    return CUDA_ERROR_INVALID_IMAGE;
  }
  std::vector<PtxText> texts;
  const CUresult result = SelectPtx(data.data(), cc, &texts, error);
  for (PtxText& text : texts) input->sources.push_back({std::string(name), std::move(text.text)});
  return result;
}

CUresult ReadContainers(Bytes section, std::string_view name, int cc, InputPtx* input,
                        std::string* error) {
  while (!section.empty()) {
    const size_t bytes = image::ContainerBytes(section);
    if (bytes == 0) {
      *error = "a section of device code is damaged";
      return CUDA_ERROR_INVALID_IMAGE;
    }
    if (bytes > image::kContainerHeaderBytes) {  // not an empty one
      const CUresult result = ReadContainer(section.first(bytes), name, cc, input, error);
      if (result != CUDA_SUCCESS) return result;
    }
    const size_t padded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    section = section.subspan(std::min(padded, section.size()));
  }
  return CUDA_SUCCESS;
}

CUresult ReadObject(Bytes data, std::string_view name, int cc, InputPtx* input,
                    std::string* error) {
  CUresult result = CUDA_SUCCESS;
  const bool is_elf = image::ForEachSection(data, [&](std::string_view section, Bytes bytes) {
    if (result != CUDA_SUCCESS || (section != kFatbinSection && section != kRelocatableSection))
      return;
    result = ReadContainers(bytes, name, cc, input, error);
  });
  if (!is_elf && result == CUDA_SUCCESS) {
    *error = "not a host object";
    return CUDA_ERROR_INVALID_IMAGE;
  }
  return result;
}

CUresult ReadLibrary(Bytes data, std::string_view name, int cc, InputPtx* input,
                     std::string* error) {
  input->is_library = true;
  size_t members = 0;
  const bool is_archive = ForEachMember(data, [&](std::string_view member, Bytes bytes) {
    if (++members > kMaxMembers) return;
    const std::string full = fmt::format("{}({})", name, member);
    InputPtx object;
    std::string why;
    if (ReadObject(bytes, full, cc, &object, &why) != CUDA_SUCCESS) {
      input->left_out.push_back(fmt::format("{}: {}", full, why));
      return;
    }
    for (NamedPtx& source : object.sources) input->sources.push_back(std::move(source));
  });
  if (is_archive && members <= kMaxMembers) return CUDA_SUCCESS;
  *error = is_archive ? "a library of too many members" : "not an archive, or a damaged one";
  return CUDA_ERROR_INVALID_IMAGE;
}

CUresult ReadCubin(Bytes data, InputPtx* input, std::string* error) {
  const image::Image measured = image::MeasureImage(data.data(), data.size());
  if (measured.kind != image::Kind::kElf) {
    *error = "not a cubin";
    return CUDA_ERROR_INVALID_IMAGE;
  }
  if (!IsLinkedImage(data)) {
    *error = "a cubin (SASS): this device links PTX only";
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  if (ReadLinkedImage(data, &input->sources)) return CUDA_SUCCESS;
  *error = "a damaged image";
  return CUDA_ERROR_INVALID_IMAGE;
}

// Documented to end with a NUL; it ends at `size` at the latest.
CUresult ReadText(Bytes data, std::string_view name, InputPtx* input) {
  const std::string_view text(reinterpret_cast<const char*>(data.data()), data.size());
  input->sources.push_back({std::string(name), std::string(text.substr(0, text.find('\0')))});
  return CUDA_SUCCESS;
}

}  // namespace

CUresult ReadLinkInput(CUjitInputType type, Bytes data, std::string_view name,
                       int compute_capability, InputPtx* input, std::string* error) {
  *input = InputPtx();
  switch (type) {
    case CU_JIT_INPUT_CUBIN:
      return ReadCubin(data, input, error);
    case CU_JIT_INPUT_PTX:
      return ReadText(data, name, input);
    case CU_JIT_INPUT_FATBINARY:
      return ReadContainer(data, name, compute_capability, input, error);
    case CU_JIT_INPUT_OBJECT:
      return ReadObject(data, name, compute_capability, input, error);
    case CU_JIT_INPUT_LIBRARY:
      return ReadLibrary(data, name, compute_capability, input, error);
    case CU_JIT_INPUT_NVVM:
      *error = "NVVM IR and LTO-IR are not linked here: compile to PTX";
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      *error = "an unknown type of input";
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace smolvm::emulation
