// What CUDA's loaders are given, and how long it is.
//
// cuModuleLoadData, cuLibraryLoadData and their kin take a pointer without a length. Whoever has to
// copy an image (the guest's shim) or must not read past its end (the worker, the emulation device)
// measures it here, by the image's own headers. Nothing but sizes and magic numbers is looked at;
// the fatbin's entries are walked by fatbin.h.
//
//   first bytes            | what it is      | its length
//   -----------------------|-----------------|------------------------------------------------
//   0x466243B1             | wrapper         | 24 bytes, and what its pointers lead to
//   0xBA55ED50             | fatbin container| header size + the u64 behind it
//   7F 'E' 'L' 'F', 64-bit | cubin           | the furthest end of headers, sections, segments
//   text                   | PTX             | to the NUL, which is counted
//
// Sources: crt/host_runtime.h and fatbinary_section.h of the CUDA toolkit (wrapper), the ELF-64
// object file format, and what nvcc and fatbinary of toolkits 11 to 13 write (container).
//
// Threads: every function may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace smolvm::image {

// As the limit of an image in one's own process, whose end only the image knows.
inline constexpr size_t kUnknownLimit = SIZE_MAX;
// Longer than any image: a length beyond is a damaged header, and is refused even when the limit is
// unknown.
inline constexpr size_t kMaxImageBytes = size_t{1} << 36;

inline constexpr uint32_t kWrapperMagic = 0x466243B1;
inline constexpr uint32_t kContainerMagic = 0xBA55ED50;
inline constexpr size_t kWrapperBytes = 24;

enum class Kind {
  kInvalid,    // none of these, or it does not end within the limit
  kPtx,        // text with a terminating NUL
  kContainer,  // a fatbin container
  kWrapperV1,  // {magic, 1, container*, unused}
  kWrapperV2,  // {magic, 2, device-linked container*, NULL-terminated array of prelinked
               // container*}; -rdc=true
  kElf,        // a cubin
};

struct Image {
  Kind kind = Kind::kInvalid;
  // Of the object itself: a wrapper's are always kWrapperBytes, PTX's include the NUL. 0 for
  // kInvalid.
  size_t bytes = 0;
};

// Never reads at or beyond `p + limit`, never follows a pointer in the image, and needs no
// alignment. With kUnknownLimit no byte is read that the image's own headers do not claim.
Image MeasureImage(const void* p, size_t limit);

// The containers that a wrapper points to.
struct WrapperParts {
  Kind kind = Kind::kInvalid;  // kWrapperV1 or kWrapperV2
  // Version 1: one. Version 2: the device-linked one (often an empty container), then the prelinked
  // ones.
  std::vector<std::span<const std::byte>> containers;
};

// Follows the wrapper's pointers, so only for a wrapper of one's own process: what a guest sent
// must never get here. Nullopt when it is no wrapper, or a pointer leads to something that is not a
// container.
std::optional<WrapperParts> ReadWrapper(const void* p);

// The flat form of an image, for sending it: its bytes; for a wrapper its containers, one after the
// other, each padded with zeroes to a multiple of 8. Follows pointers (see ReadWrapper). Empty when
// the image is invalid.
std::vector<std::byte> Flatten(const void* p);

// The receiving side of Flatten: an image that a loader in this process can be given.
//
// Lifetime: refers to the bytes that it was made of, which must outlive it. Cannot be copied:
// image() may point into it.
class FlatImage {
 public:
  // Nullopt when the bytes are not exactly one flat form; then CUDA_ERROR_INVALID_IMAGE is the
  // answer. Containers are checked down to the bounds of their entries, so that a loader that
  // trusts them reads inside `flat`.
  static std::optional<FlatImage> Read(std::span<const std::byte> flat);

  FlatImage(FlatImage&&) noexcept;
  FlatImage& operator=(FlatImage&&) = delete;

  // kPtx, kElf, kContainer (a version 1 wrapper's too, which loaders take bare as well) or
  // kWrapperV2.
  Kind kind() const { return kind_; }
  // For cuModuleLoadData and cuLibraryLoadData.
  const void* image() const;

 private:
  struct Wrapper {  // as loaders expect it
    uint32_t magic = kWrapperMagic;
    uint32_t version = 2;
    const void* data = nullptr;
    const void* prelinked = nullptr;
  };
  static_assert(sizeof(void*) != 8 || sizeof(Wrapper) == kWrapperBytes);

  FlatImage(Kind kind, const void* data) : kind_(kind), data_(data) {}

  Kind kind_;
  const void* data_;
  Wrapper wrapper_;
  std::vector<const void*> prelinked_;  // with the NULL at its end
};

}  // namespace smolvm::image
