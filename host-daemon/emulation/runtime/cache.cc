#include "host-daemon/emulation/runtime/cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "protocol/log/log.h"

namespace smolvm::emulation {
namespace {

constexpr std::array<uint32_t, 64> kRounds = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

void Compress(std::array<uint32_t, 8>* hash, const uint8_t* block) {
  uint32_t w[64];
  for (int i = 0; i < 16; ++i) {
    w[i] = uint32_t{block[4 * i]} << 24 | uint32_t{block[4 * i + 1]} << 16 |
           uint32_t{block[4 * i + 2]} << 8 | uint32_t{block[4 * i + 3]};
  }
  for (int i = 16; i < 64; ++i) {
    const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = *hash;
  for (int i = 0; i < 64; ++i) {
    const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRounds[i] + w[i];
    const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const uint32_t add[8] = {a, b, c, d, e, f, g, h};
  for (int i = 0; i < 8; ++i) (*hash)[i] += add[i];
}

constexpr size_t kDigestChars = 64;
constexpr size_t kMaxObjectBytes = 256 << 20;

// Once: a full disk would otherwise have a line for each kernel.
void NoteUnwritable(int error) {
  static std::atomic<bool> noted{false};
  if (noted.exchange(true)) return;
  log::Warn("event=cache_unwritable reason={}", log::Quote(strerror(error)));
}

}  // namespace

std::string Sha256(std::string_view data) {
  std::array<uint32_t, 8> hash = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                  0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const auto* bytes = reinterpret_cast<const uint8_t*>(data.data());
  size_t left = data.size();
  for (; left >= 64; left -= 64, bytes += 64) Compress(&hash, bytes);
  uint8_t tail[128] = {};
  memcpy(tail, bytes, left);
  tail[left] = 0x80;
  const size_t size = left < 56 ? 64 : 128;
  const uint64_t bits = uint64_t{data.size()} * 8;
  for (int i = 0; i < 8; ++i) tail[size - 1 - i] = static_cast<uint8_t>(bits >> (8 * i));
  for (size_t at = 0; at < size; at += 64) Compress(&hash, tail + at);
  std::string text;
  for (const uint32_t word : hash) text += fmt::format("{:08x}", word);
  return text;
}

struct CodeCache::State {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<codegen::LoadedCode>> live;
  int directory = -1;  // opened once, so that a sandboxed worker needs no path later
};

CodeCache::CodeCache() : state_(new State) {
  const char* path = getenv("SMOLVM_CUDA_EMULATION_CACHE");
  if (path == nullptr || *path == '\0' || strcmp(path, "off") == 0) return;
  mkdir(path, 0700);
  state_->directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (state_->directory < 0) {
    log::Warn("event=cache_unusable directory={} reason={}", log::Quote(path),
              log::Quote(strerror(errno)));
  }
}

CodeCache& CodeCache::Get() {
  static auto* cache = new CodeCache;
  return *cache;
}

std::shared_ptr<codegen::LoadedCode> CodeCache::Find(const std::string& key) {
  std::lock_guard lock(state_->mutex);
  const auto found = state_->live.find(key);
  return found == state_->live.end() ? nullptr : found->second.lock();
}

void CodeCache::Keep(const std::string& key, const std::shared_ptr<codegen::LoadedCode>& code) {
  std::lock_guard lock(state_->mutex);
  std::erase_if(state_->live, [](const auto& entry) { return entry.second.expired(); });
  state_->live[key] = code;
}

bool CodeCache::Holds(const std::string& key) {
  if (Find(key) != nullptr) return true;
  return state_->directory >= 0 &&
         faccessat(state_->directory, key.c_str(), R_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

// A file is the digest of the object, then the object.
bool CodeCache::Read(const std::string& key, std::string* object) {
  if (state_->directory < 0) return false;
  const int file = openat(state_->directory, key.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) return false;
  struct stat status {};
  bool good = fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == geteuid() &&
              status.st_size > static_cast<off_t>(kDigestChars) &&
              status.st_size < static_cast<off_t>(kMaxObjectBytes);
  std::string bytes;
  if (good) {
    bytes.resize(static_cast<size_t>(status.st_size));
    size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t n = read(file, bytes.data() + done, bytes.size() - done);
      if (n <= 0) break;
      done += static_cast<size_t>(n);
    }
    good = done == bytes.size();
  }
  close(file);
  if (!good) return false;
  *object = bytes.substr(kDigestChars);
  return Sha256(*object) == std::string_view(bytes).substr(0, kDigestChars);
}

void CodeCache::Write(const std::string& key, const std::string& object) {
  if (state_->directory < 0) return;
  // Written under another name first: a reader never sees half a file.
  static std::atomic<unsigned> counter{0};
  const std::string temporary = fmt::format("{}.{}.{}", key, getpid(), counter++);
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
  int file = openat(state_->directory, temporary.c_str(), kFlags, 0600);
  if (file < 0 && errno == EEXIST) {  // of a process that died, whose number is ours now
    unlinkat(state_->directory, temporary.c_str(), 0);
    file = openat(state_->directory, temporary.c_str(), kFlags, 0600);
  }
  if (file < 0) return NoteUnwritable(errno);
  const std::string bytes = Sha256(object) + object;
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = write(file, bytes.data() + done, bytes.size() - done);
    if (n <= 0) {
      NoteUnwritable(errno);
      break;
    }
    done += static_cast<size_t>(n);
  }
  close(file);
  if (done != bytes.size() ||
      renameat(state_->directory, temporary.c_str(), state_->directory, key.c_str()) != 0) {
    unlinkat(state_->directory, temporary.c_str(), 0);
  }
}

}  // namespace smolvm::emulation
