// SHA-256 (FIPS 180-4), for the keys of caches: libsodium's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace smolvm {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void Add(std::string_view bytes);
  // A field with its length first, so that two lists of fields never hash alike by accident.
  void AddField(std::string_view field);
  // Lower-case hexadecimal. The object must not be used afterwards.
  std::string Finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string Sha256Of(std::string_view bytes);

}  // namespace smolvm
