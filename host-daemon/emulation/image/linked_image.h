// What cuLinkComplete makes on this device, and cuModuleLoadData takes back: the linked PTX sources
// in an ELF file, so that programs which look at a "cubin", or keep it in a file, find its length
// where they expect it.
//
//   ELF-64 header (e_machine EM_CUDA), section ".smolvm.ptx", section names, section headers
//   ".smolvm.ptx": "SMOLPTX1" | u64 count | count × {u64 name bytes | u64 text bytes}
//                  | names and texts, in order | u64 FNV-1a hash of all before it
//
// A program may load what it has read from anywhere, so nothing in it is trusted.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace smolvm::emulation {

struct NamedPtx {
  std::string name;  // for messages
  std::string text;
};

std::vector<std::byte> WriteLinkedImage(std::span<const NamedPtx> sources);

// Whether this is an ELF file with such a section, whole or damaged; `image` is a whole ELF file
// (image::MeasureImage).
bool IsLinkedImage(std::span<const std::byte> image);
// False: damaged.
bool ReadLinkedImage(std::span<const std::byte> image, std::vector<NamedPtx>* sources);

}  // namespace smolvm::emulation
