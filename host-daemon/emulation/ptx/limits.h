// How much of anything a PTX source may hold: what a guest sends must not be able to exhaust the
// worker.
#pragma once

#include <cstddef>
#include <cstdint>

namespace smolvm::emulation::ptx {

// The largest PTX seen in programs is about 40 MB.
inline constexpr size_t kMaxSourceBytes = size_t{256} << 20;
// Compilers nest two or three.
inline constexpr size_t kMaxScopeDepth = 64;
inline constexpr int kMaxExpressionDepth = 64;
inline constexpr size_t kMaxDimensions = 16;
// tcgen05.ld has vectors of 128.
inline constexpr size_t kMaxOperands = 512;
inline constexpr uint64_t kMaxVariableBytes = uint64_t{1} << 40;
// Bytes of initialisers, all variables together: an initialiser of a few characters can sit at the
// far end of a huge array of arrays.
inline constexpr uint64_t kMaxInitialBytes = uint64_t{256} << 20;
// PTX ISA 9.0, 5.1.6.1: parameters of a kernel. Here of every function, each way: they lie in the
// local memory of the thread that calls.
inline constexpr uint64_t kMaxParamBytes = 32764;
inline constexpr uint32_t kMaxAlignment = 1u << 20;

}  // namespace smolvm::emulation::ptx
