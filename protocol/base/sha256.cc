#include "protocol/base/sha256.h"

#include <sodium/crypto_hash_sha256.h>
#include <sodium/utils.h>

namespace smolvm {

struct Sha256::State {
  crypto_hash_sha256_state hash;
};

Sha256::Sha256() : state_(std::make_unique<State>()) { crypto_hash_sha256_init(&state_->hash); }

Sha256::~Sha256() = default;

void Sha256::Add(std::string_view bytes) {
  crypto_hash_sha256_update(&state_->hash, reinterpret_cast<const unsigned char*>(bytes.data()),
                            bytes.size());
}

void Sha256::AddField(std::string_view field) {
  Add(std::to_string(field.size()) + ":");
  Add(field);
}

std::string Sha256::Finish() {
  unsigned char digest[crypto_hash_sha256_BYTES];
  crypto_hash_sha256_final(&state_->hash, digest);
  char text[2 * sizeof digest + 1];
  return sodium_bin2hex(text, sizeof text, digest, sizeof digest);
}

std::string Sha256Of(std::string_view bytes) {
  Sha256 hash;
  hash.Add(bytes);
  return hash.Finish();
}

}  // namespace smolvm
