// How each kernel's parameters lie in their block, from the image itself: for drivers that cannot
// be asked (cuFuncGetParamInfo came with CUDA 12.4).
//
// A cubin says it in the section ".nv.info.KERNEL", a list of attributes:
//
//   u8 format | u8 attribute | u16 value, or the length of what follows (format 4)
//   0x17 KPARAM_INFO:      u32 index | u16 ordinal | u16 offset | u32 with the size in bits 18 to
//   31 0x45 KPARAM_INFO_V2:   u32 index | u16 ordinal | u16 offset | u16 size | u16 flags; for
//   blocks
//                          beyond 4 KiB
//   0x19 CBANK_PARAM_SIZE: bytes of the whole block (format 3), which the others must fill
//
// as ptxas of toolkits 11 to 13 writes it; cuobjdump prints these names. PTX says it in the
// parameter list of each .entry (PTX ISA, kernel function parameters): each parameter is aligned
// naturally, or as .align says, behind the one before it.
//
// Images come from hostile guests: nothing is read outside them, and what contradicts itself is not
// known. Threads: every function may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace smolvm::image {

struct KernelParam {
  uint32_t offset = 0;
  uint32_t size = 0;
  bool operator==(const KernelParam&) const = default;
};
using KernelParams = std::vector<KernelParam>;

// CUDA programming guide, kernel parameters: the limit since CUDA 12.1.
inline constexpr uint32_t kMaxKernelParamBytes = 32764;

// What a reader keeps of one image at most: sections of a hostile one may overlap, so that its size
// bounds nothing. Programs have thousands of kernels. Those behind the bounds are not known.
inline constexpr size_t kMaxKernels = 1 << 16;
inline constexpr size_t kMaxParamsInAll = 1 << 20;

// What an image says of its kernels, by name; nullopt where it says nothing, or two things.
using KernelParamsByName = std::map<std::string, std::optional<KernelParams>, std::less<>>;

// The attributes of one ".nv.info.KERNEL" section.
std::optional<KernelParams> ReadKernelInfo(std::span<const std::byte> attributes);

// The parameter list of each .entry of a PTX text.
KernelParamsByName ReadPtxKernelParams(std::string_view ptx);

// `flat` is what FlatImage::Read has accepted. Of a fatbin's entries those that are not compressed
// are looked at (nvcc leaves cubins so); the driver may run another one of them, which has the same
// parameters (CUDA programming guide: a kernel's signature does not depend on __CUDA_ARCH__).
KernelParamsByName ReadKernelParams(std::span<const std::byte> flat);

}  // namespace smolvm::image
