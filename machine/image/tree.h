// An unpacked root file system on the host: what is in it, and an erofs image of it.
#pragma once

#include <filesystem>
#include <string>

#include "machine/image/expansion.h"

namespace smolvm::machine {

enum class Libc { kGlibc, kMusl, kNone };
const char* LibcName(Libc libc);

// Links inside the tree are followed within it, never into the host.
Libc FindLibc(const std::filesystem::path& tree);

// A key of the tree's names, types, sizes, modes, times and links; not of the files' content.
std::string FingerprintTree(const std::filesystem::path& tree);

// Writes an erofs image. An ordinary user's files become root's, since their owners were lost when
// they were unpacked. Throws Failure.
void WriteErofs(const std::filesystem::path& tree, const std::filesystem::path& target,
                const Expansion& expansion);

}  // namespace smolvm::machine
