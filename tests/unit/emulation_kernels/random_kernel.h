// Random kernels of PTX whose results the ISA defines: integer and floating arithmetic, predicates,
// branches and loops that diverge, local and shared memory, barriers, warp operations, calls.
#pragma once

#include <cstdint>
#include <string>

namespace smolvm::emulation {

// The module's head, with what its kernels share.
std::string RandomKernelHeader();

// A kernel `name` with parameters (.u64 in, .u64 out), for blocks of kRandomThreads threads. Each
// thread reads kRandomInputs words of `in` and writes kRandomOutputs words of `out`, both at its
// number in the grid. The same seed makes the same text everywhere.
inline constexpr uint32_t kRandomThreads = 64;
inline constexpr uint32_t kRandomInputs = 8;
inline constexpr uint32_t kRandomOutputs = 32;
//
// Threads of independent kernels never wait for each other, call nothing and have no local memory,
// so that several may run at once; those that meet wait only at barriers that all come to. Both use
// kRandomScratch words of their own behind all threads' inputs: first four for each thread in turn,
// then one.
enum class RandomKind { kAll, kIndependent, kMeeting };
inline constexpr uint32_t kRandomScratch = 5;
std::string RandomKernel(const std::string& name, uint64_t seed, RandomKind kind);

}  // namespace smolvm::emulation
