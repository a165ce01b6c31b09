// Warp operations and cooperative groups.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
__global__ void red(const int* in, int* out, int n) {
  int v = in[threadIdx.x];
  for (int o = 16; o; o >>= 1) v += __shfl_down_sync(~0u, v, o);
  int w = __shfl_xor_sync(~0u, v, 3);
  w += __shfl_sync(~0u, v, 2, 8);
  w += __shfl_up_sync(~0u, v, 1);
  unsigned b = __ballot_sync(~0u, v > 3);
  if (__any_sync(~0u, v == 3)) b++;
  if (__all_sync(~0u, v)) b--;
  b += __match_any_sync(~0u, v);
  int p;
  b += __match_all_sync(~0u, v, &p);
  b += p;
  b += __activemask();
  __syncwarp();
  b += __reduce_add_sync(~0u, b);
  b += __reduce_max_sync(~0u, w);
  b ^= __reduce_xor_sync(~0u, b);
  out[threadIdx.x] = b + w;
  int c = __syncthreads_count(v);
  c += __syncthreads_and(v);
  c += __syncthreads_or(w);
  out[n] = c;
}
__global__ void grid(int* x) {
  auto g = cg::this_grid();
  x[g.thread_rank()]++;
  g.sync();
  auto t = cg::tiled_partition<16>(cg::this_thread_block());
  int s = cg::reduce(t, x[0], cg::plus<int>());
  x[g.thread_rank()] = s;
  auto c = cg::coalesced_threads();
  if (c.thread_rank() == 0) x[1] = c.size();
}
