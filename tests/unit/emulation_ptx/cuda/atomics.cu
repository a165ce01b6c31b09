// Atomics of all widths and scopes, fences.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cuda/atomic>
__global__ void at(int* i, unsigned* u, unsigned long long* l, float* f, double* d, __half* h,
                   __half2* h2, __nv_bfloat16* b, unsigned short* us) {
  __shared__ int s[64];
  s[threadIdx.x] = 0;
  __syncthreads();
  atomicAdd(i, 1);
  atomicSub(i, 2);
  atomicMin(i, 3);
  atomicMax(u, 4u);
  atomicAnd(u, 5u);
  atomicOr(u, 6u);
  atomicXor(u, 7u);
  u[1] = atomicInc(u, 8u);
  u[2] = atomicDec(u, 9u);
  u[3] = atomicExch(u, 10u);
  u[4] = atomicCAS(u, 1u, 2u);
  atomicAdd(l, 1ull);
  l[1] = atomicCAS(l, 1ull, 2ull);
  atomicMax(l, 3ull);
  f[1] = atomicAdd(f, 1.f);
  d[1] = atomicAdd(d, 2.0);
  h[1] = atomicAdd(h, h[0]);
  h2[1] = atomicAdd(h2, h2[0]);
  b[1] = atomicAdd(b, b[0]);
  us[1] = atomicCAS(us, 1, 2);
  atomicAdd(&s[3], 1);
  atomicAdd_block(i, 1);
  atomicAdd_system(i, 1);
  cuda::atomic_ref<int, cuda::thread_scope_device> r(*i);
  r.fetch_add(1, cuda::memory_order_acq_rel);
  r.store(3, cuda::memory_order_release);
  i[2] = r.load(cuda::memory_order_acquire);
  i[3] = r.exchange(5);
  __threadfence();
  __threadfence_block();
  __threadfence_system();
  *(volatile int*)i = 3;
  i[4] = s[4];
}
