// Guarded stacks for fibres, kept for reuse: the first touch of a fresh stack costs 15 to 25 µs.
//
// Machine stacks lie outside the arena, so that a kernel cannot reach a return address: what a
// kernel may address
// (.local variables) has a window of its own in the arena's scratch region.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace smolvm::emulation {

struct Stack {
  char* guard = nullptr;  // lowest address of the guard area
  char* bottom = nullptr;
  char* top =
      nullptr;  // where a fibre starts; differs between stacks so that they do not share cache sets
};

// Threads: any. Lifetime: one per process and size, never destroyed.
class StackPool {
 public:
  static constexpr size_t kGuardBytes = 32 << 10;

  // `stack_bytes` is rounded up to pages.
  explicit StackPool(size_t stack_bytes);

  // Appends `count` stacks to *stacks; false (and nothing appended) when memory is short.
  bool Take(size_t count, std::vector<Stack>* stacks);
  // Puts back all of *stacks and clears it.
  void Put(std::vector<Stack>* stacks);

  size_t stack_bytes() const { return stack_bytes_; }
  // The pool for a size class that holds at least `stack_bytes`.
  static StackPool& ForSize(size_t stack_bytes);

 private:
  bool Grow(size_t count);

  const size_t stack_bytes_;
  std::mutex mutex_;
  std::vector<Stack> free_;
  size_t made_ = 0;
};

}  // namespace smolvm::emulation
