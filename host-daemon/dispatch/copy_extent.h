// The memory that a copy of rows touches, from numbers that a guest chose: all of 64 bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace smolvm::dispatch {

// width × height × depth. False when that is beyond 64 bits.
inline bool PackedBytes(size_t width, size_t height, size_t depth, uint64_t* bytes) {
  // A product of which one factor is 0 is 0, however large the others are.
  *bytes = 0;
  if (width == 0 || height == 0 || depth == 0) return true;
  uint64_t slice;
  return !__builtin_mul_overflow(uint64_t{width}, uint64_t{height}, &slice) &&
         !__builtin_mul_overflow(slice, uint64_t{depth}, bytes);
}

struct CopySide {
  size_t pitch = 0;   // from row to row, in bytes
  size_t height = 0;  // from slice to slice, in rows
  size_t x = 0, y = 0, z = 0;
};

// Where, counted from the side's base, the last byte of a copy of width × height × depth ends; none
// of them is 0. False when that is beyond 64 bits.
inline bool EndOf(const CopySide& side, size_t width, size_t height, size_t depth, uint64_t* end) {
  const auto add_product = [end](uint64_t count, uint64_t step) {
    uint64_t product;
    return !__builtin_mul_overflow(count, step, &product) &&
           !__builtin_add_overflow(*end, product, end);
  };
  uint64_t slice, last_row, last_slice;
  *end = side.x;
  return !__builtin_add_overflow(*end, uint64_t{width}, end) &&
         !__builtin_mul_overflow(uint64_t{side.pitch}, uint64_t{side.height}, &slice) &&
         !__builtin_add_overflow(uint64_t{side.y}, uint64_t{height - 1}, &last_row) &&
         !__builtin_add_overflow(uint64_t{side.z}, uint64_t{depth - 1}, &last_slice) &&
         add_product(last_row, side.pitch) && add_product(last_slice, slice);
}

}  // namespace smolvm::dispatch
