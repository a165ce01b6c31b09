// The options of a load or a link as the driver gets them: numbers are passed on, log buffers are
// ours, addresses of the guest's never get here.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace smolvm::dispatch {

// Lifetime: the arrays must stay where they are while the driver may write to them: for a load
// until its call has returned, for a link until cuLinkDestroy has. Not copied or moved then.
class JitOptions {
 public:
  JitOptions() = default;
  JitOptions(const JitOptions&) = delete;
  JitOptions& operator=(const JitOptions&) = delete;

  // False when the lists contradict each other, or name what only an address could mean.
  bool Read(const std::vector<uint32_t>& keys, const std::vector<uint64_t>& values);

  unsigned count() const { return static_cast<unsigned>(keys_.size()); }
  CUjit_option* keys() { return keys_.data(); }
  void** values() { return values_.data(); }

  // What the driver has written so far.
  template <typename Reply>
  void Report(Reply* out) const {
    out->info_log = Text(info_, info_size_);
    out->error_log = Text(error_, error_size_);
    out->wall_time_ms = WallTime();
  }

 private:
  void AddLog(CUjit_option buffer, CUjit_option size, uint64_t wanted, std::string* log,
              std::optional<size_t>* at);
  std::string Text(const std::string& log, std::optional<size_t> at) const;
  float WallTime() const;

  std::vector<CUjit_option> keys_;
  std::vector<void*> values_;
  std::string info_, error_;
  std::optional<size_t> info_size_, error_size_, wall_time_;
};

}  // namespace smolvm::dispatch
