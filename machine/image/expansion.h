// Keeps an image from filling the host's disk: a small archive may hold any amount.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace smolvm::machine {

class Expansion {
 public:
  static constexpr uint64_t kDefaultLimit = uint64_t{64} << 30;
  // Of the disk, that is left alone.
  static constexpr uint64_t kReserve = uint64_t{256} << 20;

  // What is made in `folder`, which is there, may come to `limit` bytes.
  Expansion(std::filesystem::path folder, uint64_t limit);

  // What speaks against going on, or "": to be asked while a tool unpacks or writes.
  std::string Problem() const;
  // An unpacked tree, counted by what its files pretend to be, which is what writing them out makes
  // them. Throws Failure when that is too much, or more than the disk has room for.
  void CheckTree(const std::filesystem::path& tree) const;

 private:
  const std::filesystem::path folder_;
  const uint64_t limit_;
  const uint64_t free_before_;
};

}  // namespace smolvm::machine
