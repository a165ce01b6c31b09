#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace smolvm::machine {

// SHA-256 (FIPS 180-4), for the keys of the cache.
class Sha256 {
 public:
  Sha256();
  void Add(std::string_view bytes);
  // A field with its length first, so that two lists of fields never hash alike by accident.
  void AddField(std::string_view field);
  // Lower-case hexadecimal. The object must not be used afterwards.
  std::string Finish();

 private:
  void Block(const unsigned char* block);

  std::array<uint32_t, 8> state_;
  std::array<unsigned char, 64> pending_;
  size_t pending_size_ = 0;
  uint64_t total_ = 0;
};

std::string Sha256Of(std::string_view bytes);

}  // namespace smolvm::machine
