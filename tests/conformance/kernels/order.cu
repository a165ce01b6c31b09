// Programs that lean on the order in which a GPU runs the warps of a block: each to its next wait before any passes it.
// By the letter they race. emulation_order_test compiles this file with nvcc and says what each kernel gives.
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

#define KERNEL extern "C" __global__ void

// Weak accesses that the compiler leaves where they are.
__device__ int peek(const int* p) {
  int value;
  asm volatile("ld.s32 %0, [%1];" : "=r"(value) : "l"(p) : "memory");
  return value;
}
__device__ void poke(int* p, int value) { asm volatile("st.s32 [%0], %1;" ::"l"(p), "r"(value) : "memory"); }

// ---- a word of shared memory that all read, and thread 0 overwrites one wait later: out[round][thread] = round ----

template <typename Wait>
__device__ void overwrite(int* out, int rounds, Wait wait) {
  __shared__ int word;
  if (threadIdx.x == 0) word = 0;
  __syncthreads();
  for (int round = 0; round < rounds; ++round) {
    const int seen = peek(&word);
    wait();
    if (threadIdx.x == 0) poke(&word, seen + 1);
    wait();
    out[round * blockDim.x + threadIdx.x] = seen;
  }
}

__device__ int lane() { return threadIdx.x % 32; }
__device__ int warp() { return threadIdx.x / 32; }
__device__ void keep(int value) { asm volatile("" ::"r"(value) : "memory"); }

#define OVERWRITE(name, ...) \
  KERNEL overwrite_##name(int* out, int rounds) { overwrite(out, rounds, [] { __VA_ARGS__; }); }

OVERWRITE(block, __syncthreads())  // which runs in lanes as well
OVERWRITE(syncwarp, __syncwarp())
OVERWRITE(shuffle, keep(__shfl_xor_sync(~0u, lane(), 1)))
OVERWRITE(ballot, keep(__ballot_sync(~0u, lane() & 1)))
OVERWRITE(any, keep(__any_sync(~0u, lane() == 5)))
OVERWRITE(all, keep(__all_sync(~0u, lane() == 5)))
OVERWRITE(match, keep(__match_any_sync(~0u, lane() / 2)))
OVERWRITE(match_all, int equal; keep(__match_all_sync(~0u, 3, &equal)))
OVERWRITE(redux, keep(__reduce_add_sync(~0u, lane())))
OVERWRITE(activemask, keep(__activemask()))
OVERWRITE(tile16, auto tile = cg::tiled_partition<16>(cg::this_thread_block()); keep(tile.shfl_down(lane(), 1)))
OVERWRITE(tile4, auto tile = cg::tiled_partition<4>(cg::this_thread_block()); tile.sync())
OVERWRITE(pairs, asm volatile("bar.sync %0, %1;" ::"r"(warp() / 2),
                              "r"(min(64, static_cast<int>(blockDim.x) - warp() / 2 * 64))
                              : "memory"))
// Warps that wait in different ways.
OVERWRITE(mixed, if (warp() % 3 == 0) __syncwarp(); else if (warp() % 3 == 1) keep(__ballot_sync(~0u, 1));
          else asm volatile("bar.sync %0, 32;" ::"r"(1 + warp() % 15 / 3) : "memory"))

// Threads that wait in a function they call are fibres.
__device__ __noinline__ int waits_in_call(int value) { return __shfl_xor_sync(~0u, value, 1); }
OVERWRITE(in_call, keep(waits_in_call(lane())))

// Every second warp ends at once.
KERNEL overwrite_with_exits(int* out, int rounds) {
  if (warp() % 2 == 1) return;
  overwrite(out, rounds, [] { keep(__shfl_xor_sync(~0u, lane(), 1)); });
}

// ---- reductions by shuffles, whose words of shared memory serve twice with no barrier in between ----

template <typename F>
__device__ int reduce(int value, F f) {
  for (int step = 16; step > 0; step /= 2) value = f(value, __shfl_down_sync(~0u, value, step));
  return value;
}

// out[i] = (in[i] - largest) * sum over j of (in[j] - largest)
KERNEL reduce_twice(const int* in, int* out) {
  __shared__ int partial[32];
  const int warps = blockDim.x / 32;
  const auto larger = [](int a, int b) { return max(a, b); };
  const auto sum = [](int a, int b) { return a + b; };
  int value = in[threadIdx.x];
  const int of_warp = reduce(value, larger);
  if (lane() == 0) partial[warp()] = of_warp;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 1; i < warps; ++i) partial[0] = max(partial[0], partial[i]);
  }
  __syncthreads();
  value -= peek(&partial[0]);
  const int warp_sum = reduce(value, sum);
  if (lane() == 0) poke(&partial[warp()], warp_sum);
  __syncthreads();
  if (warp() == 0) {
    const int all = reduce(lane() < warps ? peek(&partial[lane()]) : 0, sum);
    if (lane() == 0) poke(&partial[0], all);
  }
  __syncthreads();
  const int total = peek(&partial[0]);
  const int largest_again = reduce(value, larger);
  if (lane() == 0) poke(&partial[warp()], largest_again);  // the third use, right behind the reads
  out[threadIdx.x] = value * total;
}

// ---- warps that take different numbers of waits, and such as watch memory ----

// out[thread] = 32 * (warp + 1)
KERNEL uneven_waits(int* out) {
  int sum = 0;
  for (int i = 0; i <= warp(); ++i) sum += __reduce_add_sync(~0u, 1);
  __syncthreads();
  out[threadIdx.x] = sum;
}

// Warps go in the order that a word says, from the last to the first: out[turn] = warp
KERNEL reversed_by_atomics(int* out) {
  __shared__ int turn;
  if (threadIdx.x == 0) turn = 0;
  __syncthreads();
  const int mine = blockDim.x / 32 - 1 - warp();
  if (lane() == 0) {
    while (atomicAdd(&turn, 0) != mine) {
    }
    out[mine] = warp();
    __threadfence_block();
    atomicAdd(&turn, 1);
  }
  __syncwarp();
}

// Warp 0 waits with a plain load in a loop of waits, for a warp that spins until warp 0 is there.
KERNEL waits_for_a_spinner(int* out) {
  __shared__ int there, reply;
  if (threadIdx.x == 0) there = reply = 0;
  __syncthreads();
  if (warp() == 0) {
    atomicExch(&there, 1);
    while (peek(&reply) == 0) __syncwarp();
    out[lane()] = peek(&reply);
  } else if (lane() == 0) {
    while (atomicAdd(&there, 0) == 0) {
    }
    poke(&reply, 7);
  }
}

// Warps 0 and 3 count at a barrier, then 1 and 2 at the same one, before warp 3's turn comes again.
__device__ int count_at_barrier(int predicate) {
  int count;
  asm volatile("{ .reg .pred p; setp.ne.s32 p, %1, 0; barrier.cta.red.popc.u32 %0, 1, 64, p; }"
               : "=r"(count) : "r"(predicate) : "memory");
  return count;
}
KERNEL barrier_used_again(int* out) {
  __shared__ int flag;
  if (threadIdx.x == 0) flag = 0;
  __syncthreads();
  const bool is_first = warp() == 0 || warp() == 3;
  if (!is_first) {
    while (atomicAdd(&flag, 0) == 0) {
    }
  }
  const int count = count_at_barrier(is_first || lane() == 0);
  if (threadIdx.x == 0) atomicExch(&flag, 1);
  out[threadIdx.x] = count;
}

// Never end: `word` stays 0.
KERNEL waits_for_ever(int* word) {
  while (peek(word) == 0) __syncwarp();
}
KERNEL spins_beside_waits_for_ever(int* word) {
  if (warp() == 0) {
    while (peek(word) == 0) keep(__shfl_xor_sync(~0u, lane(), 1));
  } else {
    while (atomicAdd(word, 0) == 0) {
    }
  }
}
