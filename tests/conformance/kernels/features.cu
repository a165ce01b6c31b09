// One kernel per feature of CUDA C++ that the emulation device runs. kernels_conformance_test.cc compiles this file with
// nvcc to PTX, runs each kernel, and holds the results against the same computation in host C++.
#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>

#include <cassert>
#include <cstdio>

namespace cg = cooperative_groups;

#define KERNEL extern "C" __global__ void

// ---- memory ----

__constant__ int c_table[8] = {1, 2, 3, 5, 8, 13, 21, 34};
__device__ int d_counter = 7;
__device__ float d_grid[2][3] = {{1, 2, 3}, {4, 5, 6}};
__device__ int* d_pointer = &d_counter;
__device__ const char d_text[] = "text";

KERNEL variables(int* out) {
  const int i = threadIdx.x;
  out[i] = c_table[i % 8] + *d_pointer + static_cast<int>(d_grid[i % 2][i % 3]) + d_text[i % 4];
}

struct Big {
  int a[5];
  double b;
  char c[3];
};

KERNEL struct_by_value(Big big, double* out, int index) {
  out[threadIdx.x] = big.a[(threadIdx.x + index) % 5] + big.b + big.c[threadIdx.x % 3];
}

KERNEL local_array(const int* in, int* out) {
  int values[16];
  for (int k = 0; k < 16; ++k) values[k] = in[threadIdx.x * 16 + k];
  for (int k = 0; k < 16; ++k) {  // sort, through a dynamic index
    for (int j = 0; j + 1 < 16 - k; ++j) {
      if (values[j] > values[j + 1]) {
        const int t = values[j];
        values[j] = values[j + 1];
        values[j + 1] = t;
      }
    }
  }
  for (int k = 0; k < 16; ++k) out[threadIdx.x * 16 + k] = values[(k + in[0] * 0) & 15];
}

KERNEL vectors(const float4* in, float4* out, const short2* s, int2* t) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  float4 v = in[i];
  out[i] = make_float4(v.w, v.z, v.y + 1, v.x * 2);
  t[i] = make_int2(s[i].y, s[i].x);
}

KERNEL shared_tree_sum(const int* in, int* out) {
  __shared__ int sums[256];
  sums[threadIdx.x] = in[blockIdx.x * 256 + threadIdx.x];
  __syncthreads();
  for (int step = 128; step > 0; step /= 2) {
    if (threadIdx.x < step) sums[threadIdx.x] += sums[threadIdx.x + step];
    __syncthreads();
  }
  if (threadIdx.x == 0) out[blockIdx.x] = sums[0];
}

KERNEL dynamic_shared_reverse(const int* in, int* out, int n) {
  extern __shared__ int buffer[];
  buffer[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = buffer[n - 1 - threadIdx.x];
}

KERNEL async_copy(const int* in, int* out) {
  __shared__ alignas(16) int buffer[128];
  __pipeline_memcpy_async(&buffer[threadIdx.x * 4], &in[threadIdx.x * 4], 16);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  for (int k = 0; k < 4; ++k) out[threadIdx.x * 4 + k] = buffer[127 - (threadIdx.x * 4 + k)];
}

// ---- warps ----

KERNEL shuffle_sum(const int* in, int* out) {
  int value = in[blockIdx.x * blockDim.x + threadIdx.x];
  for (int step = 16; step > 0; step /= 2) value += __shfl_down_sync(~0u, value, step);
  if (threadIdx.x % 32 == 0) atomicAdd(&out[blockIdx.x], value);
}

KERNEL shuffle_modes(int* out, double* doubles) {
  const int i = threadIdx.x;
  out[i] = __shfl_up_sync(~0u, i, 5);
  out[32 + i] = __shfl_xor_sync(~0u, i, 9, 16);
  out[64 + i] = __shfl_sync(~0u, i, i + 3, 8);
  doubles[i] = __shfl_down_sync(~0u, i * 0.5, 2);
}

KERNEL votes(unsigned* out) {
  const int i = threadIdx.x;
  unsigned* o = out + i * 8;
  o[0] = __ballot_sync(~0u, i % 3 == 0);
  o[1] = __any_sync(~0u, i == 7);
  o[2] = __all_sync(~0u, i < 31);
  o[3] = __match_any_sync(~0u, i / 5);
  int pred;
  o[4] = __match_all_sync(~0u, 42, &pred) + pred;
  o[5] = __reduce_add_sync(~0u, i);
  o[6] = __reduce_max_sync(~0u, i ^ 5);
  o[7] = __activemask();
}

KERNEL divergent_masks(int* out) {
  const int i = threadIdx.x;
  int value = i;
  if (i % 2) {
    for (int step = 16; step > 1; step /= 2) value += __shfl_xor_sync(0xaaaaaaaa, value, step);
  } else if (i < 16) {
    value = __shfl_sync(0x00005555, value, 4);
  } else {
    value = __popc(__ballot_sync(0x55550000, i > 20));
  }
  out[i] = value;
}

KERNEL early_exit(int* out) {
  if (threadIdx.x % 4 == 3) return;
  __syncthreads();
  out[threadIdx.x] = __popc(__ballot_sync(0x77777777, 1));
}

KERNEL spin_lock(int* lock, int* counter) {
  bool done = false;
  while (!done) {
    if (atomicCAS(lock, 0, 1) == 0) {
      __threadfence();
      *counter = *(volatile int*)counter + 1;
      __threadfence();
      atomicExch(lock, 0);
      done = true;
    }
  }
}

// The naive lock, which hangs without independent thread scheduling.
KERNEL naive_spin_lock(int* lock, int* counter) {
  while (atomicCAS(lock, 0, 1) != 0) {
  }
  *counter = *(volatile int*)counter + 1;
  __threadfence();
  atomicExch(lock, 0);
}

KERNEL producer_consumer(volatile int* flags, int* out) {
  const int i = threadIdx.x;
  if (i % 2) {
    while (flags[i - 1] == 0) {
    }
    out[i] = flags[i - 1] * 10;
  } else {
    flags[i] = i + 1;
    out[i] = i;
  }
}

KERNEL barriers_in_both_arms(int* out) {
  __shared__ int values[128];
  const int i = threadIdx.x;
  if ((i / 32) % 2 == 0) {
    values[i] = i * 2;
    __syncthreads();
    out[i] = values[i ^ 32];
  } else {
    values[i] = i * 3;
    __syncthreads();
    out[i] = values[i ^ 32] + 1;
  }
}

KERNEL barrier_reductions(int* out) {
  const int i = threadIdx.x;
  out[i * 3] = __syncthreads_count(i % 3 == 0);
  out[i * 3 + 1] = __syncthreads_and(i < 1000);
  out[i * 3 + 2] = __syncthreads_or(i == 50);
}

KERNEL coalesced_add(int* counter, const int* in) {
  if (in[threadIdx.x] > 0) {
    cg::coalesced_group group = cg::coalesced_threads();
    if (group.thread_rank() == 0) atomicAdd(counter, group.size());
  }
}

KERNEL tiles(const int* in, int* out) {
  cg::thread_block_tile<8> tile = cg::tiled_partition<8>(cg::this_thread_block());
  int value = in[threadIdx.x];
  for (int step = 4; step > 0; step /= 2) value += tile.shfl_xor(value, step);
  tile.sync();
  out[threadIdx.x] = value;
}

KERNEL grid_sync(int* data, int n, int rounds) {
  cg::grid_group grid = cg::this_grid();
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  for (int r = 0; r < rounds; ++r) {
    const int next = data[(i + 1) % n];
    grid.sync();
    data[i] = next;
    grid.sync();
  }
}

// ---- atomics ----

KERNEL atomics32(int* i32, unsigned* u32, float* f32) {
  const int i = threadIdx.x;
  atomicAdd(&i32[0], i);
  atomicSub(&i32[1], i);
  atomicMin(&i32[2], i - 40);
  atomicMax(&i32[3], i * 3);
  atomicAnd(&i32[4], ~(1 << (i % 32)));
  atomicOr(&i32[5], 1 << (i % 32));
  atomicXor(&i32[6], i);
  atomicInc(&u32[0], 9);
  atomicDec(&u32[1], 9);
  atomicMax(&u32[2], 0x80000000u + i);
  atomicAdd(&f32[0], 0.5f);
  atomicExch(&i32[7], 99);
}

KERNEL atomics64(unsigned long long* u64, double* f64, long long* s64) {
  const int i = threadIdx.x;
  atomicAdd(&u64[0], 1ull << 33);
  atomicMax(&u64[1], 1ull << (i % 64));
  atomicMin(&s64[0], -static_cast<long long>(i) << 33);
  atomicXor(&u64[2], 1ull << (i % 64));
  atomicAdd(&f64[0], 0.25);
  unsigned long long old = u64[3], seen;
  do {
    seen = old;
    old = atomicCAS(&u64[3], seen, seen + 3);
  } while (seen != old);
}

KERNEL atomics_half(__half* h, __half2* h2, __nv_bfloat16* b, __nv_bfloat162* b2, unsigned short* u16) {
  atomicAdd(h, __float2half(1.0f));
  atomicAdd(h2, __floats2half2_rn(1.0f, 2.0f));
  atomicAdd(b, __float2bfloat16(1.0f));
  atomicAdd(b2, __floats2bfloat162_rn(1.0f, 0.5f));
  unsigned short old = *u16, seen;
  do {
    seen = old;
    old = atomicCAS(u16, seen, static_cast<unsigned short>(seen + 1));
  } while (seen != old);
}

KERNEL shared_histogram(const unsigned char* in, int n, unsigned* out) {
  __shared__ unsigned bins[256];
  bins[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&bins[in[i]], 1u);
  __syncthreads();
  atomicAdd(&out[threadIdx.x], bins[threadIdx.x]);
}

// ---- functions ----

__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
KERNEL recursion(int* out) { out[threadIdx.x] = fibonacci(threadIdx.x % 12); }

__device__ __noinline__ int twice(int x) { return 2 * x; }
__device__ __noinline__ int square(int x) { return x * x; }
__device__ __noinline__ int negate(int x) { return -x; }
using Function = int (*)(int);
__device__ Function d_functions[3] = {twice, square, negate};
KERNEL function_pointers(int* out) { out[threadIdx.x] = d_functions[threadIdx.x % 3](threadIdx.x); }
KERNEL bad_function_pointer(int* out, unsigned long long address) {
  Function function = reinterpret_cast<Function>(address);
  out[0] = function(1);
}
KERNEL wrong_signature(int* out) {
  auto function = reinterpret_cast<double (*)(double, double)>(d_functions[0]);
  out[0] = static_cast<int>(function(1, 2));
}

struct Shape {
  __device__ virtual float area() const = 0;
  __device__ virtual ~Shape() {}
};
struct Square : Shape {
  float side;
  __device__ explicit Square(float s) : side(s) {}
  __device__ float area() const override { return side * side; }
};
struct Circle : Shape {
  float radius;
  __device__ explicit Circle(float r) : radius(r) {}
  __device__ float area() const override { return 3.0f * radius * radius; }
};
KERNEL virtual_functions(float* out) {
  Shape* shape;
  if (threadIdx.x % 2) {
    shape = new Square(threadIdx.x);
  } else {
    shape = new Circle(threadIdx.x);
  }
  out[threadIdx.x] = shape->area();
  delete shape;
}

struct Triple {
  double x, y;
  int z;
};
__device__ __noinline__ Triple rotate(Triple t, int by) {
  if (by & 1) return {t.y, t.x, t.z + by};
  return {t.x * 2, t.y, t.z - by};
}
KERNEL struct_calls(double* out) {
  Triple t = {1.0 + threadIdx.x, 2.0, 3};
  t = rotate(rotate(t, threadIdx.x), 1);
  out[threadIdx.x] = t.x * 100 + t.y * 10 + t.z;
}

KERNEL switches(const int* in, int* out) {
  int value = in[threadIdx.x];
  switch (value) {
    case 0: value = 100; break;
    case 1: value = value * 7 + 1; break;
    case 2: value = -value; break;
    case 3: value ^= 0x55; break;
    case 4: value <<= 4; break;
    case 5: value = 1 - value * value; break;
    case 6: value = 66; break;
    case 7: value = value / 2; break;
    default: value = -1;
  }
  out[threadIdx.x] = value;
}

__device__ __noinline__ int deep(int n, volatile int* p) {
  volatile int pad[64];
  pad[n % 64] = n;
  if (n == *p) return pad[n % 64];
  return deep(n + 1, p) + pad[n % 64];
}
KERNEL endless_recursion(int* p) { p[1] = deep(0, p); }

// ---- system ----

KERNEL prints(int n) {
  printf("block %d thread %u value %5.2f %s %c %lld %x\n", blockIdx.x, threadIdx.x, threadIdx.x * 1.5, "str", 'q',
         1ll << 40, n);
}
KERNEL asserts(int n) { assert(static_cast<int>(threadIdx.x) < n); }
KERNEL traps() {
  if (threadIdx.x == 3) __trap();
}
KERNEL heap(int* out) {
  int* block = static_cast<int*>(malloc((threadIdx.x + 1) * sizeof(int)));
  for (int k = 0; k <= threadIdx.x; ++k) block[k] = k;
  int sum = 0;
  for (int k = 0; k <= threadIdx.x; ++k) sum += block[k];
  free(block);
  out[threadIdx.x] = sum;
}
KERNEL clocks(long long* out) {
  const long long begin = clock64();
  __nanosleep(100);
  unsigned long long timer;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(timer));
  out[0] = clock64() - begin;
  out[1] = static_cast<long long>(timer);
}
KERNEL endless_loop(volatile int* flag) {
  while (*flag == 0) {
  }
}
KERNEL endless_arithmetic(unsigned* out) {
  unsigned x = *out;
  while (x != 1) x = x * 2 + 4;  // stays even
  *out = x;
}
KERNEL out_of_bounds(int* out, long long offset) { out[threadIdx.x + offset] = 1; }
KERNEL misaligned(char* out) { *reinterpret_cast<int*>(out + 1) = 1; }
KERNEL shared_out_of_bounds(int* out, int index) {
  __shared__ int values[32];
  values[threadIdx.x] = threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = values[index + threadIdx.x];
}

KERNEL geometry(int* out) {
  const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  out[block * blockDim.x * blockDim.y * blockDim.z + thread] =
      threadIdx.x + 10 * threadIdx.y + 100 * threadIdx.z + 1000 * blockIdx.x + 10000 * blockIdx.y + 100000 * blockIdx.z;
}

// ---- arithmetic ----

KERNEL math_f32(const float* in, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float x = in[i];
  float* o = out + i * 16;
  o[0] = sinf(x);
  o[1] = cosf(x);
  o[2] = tanf(x);
  o[3] = expf(x);
  o[4] = logf(fabsf(x));
  o[5] = sqrtf(fabsf(x));
  o[6] = powf(fabsf(x), 1.5f);
  o[7] = tanhf(x);
  o[8] = atanf(x);
  o[9] = cbrtf(x);
  o[10] = erff(x);
  o[11] = exp2f(x);
  o[12] = rsqrtf(fabsf(x));
  o[13] = fmodf(x, 0.7f);
  o[14] = __expf(x);
  o[15] = log1pf(fabsf(x));
}
KERNEL math_f64(const double* in, double* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const double x = in[i];
  double* o = out + i * 8;
  o[0] = sin(x);
  o[1] = exp(x);
  o[2] = log(fabs(x));
  o[3] = pow(fabs(x), 1.25);
  o[4] = sqrt(fabs(x));
  o[5] = atan2(x, 2.0);
  o[6] = tanh(x);
  o[7] = fma(x, x, 1.0 / x);
}
KERNEL halves(const __half* a, const __half* b, __half* out, int n) {
  const int i = threadIdx.x;
  out[i * 6] = a[i] + b[i];
  out[i * 6 + 1] = a[i] * b[i];
  out[i * 6 + 2] = a[i] / b[i];
  out[i * 6 + 3] = __hfma(a[i], b[i], a[i]);
  out[i * 6 + 4] = __hmax(a[i], b[i]);
  out[i * 6 + 5] = __float2half(sqrtf(fabsf(__half2float(a[i]))));
}
KERNEL integers64(const long long* a, const long long* b, long long* out) {
  const int i = threadIdx.x;
  out[i * 6] = a[i] / b[i];
  out[i * 6 + 1] = a[i] % b[i];
  out[i * 6 + 2] = __mul64hi(a[i], b[i]);
  out[i * 6 + 3] = __popcll(a[i]) + __clzll(b[i]) + __ffsll(a[i]);
  out[i * 6 + 4] = static_cast<long long>(__brevll(static_cast<unsigned long long>(a[i])));
  out[i * 6 + 5] = static_cast<long long>(static_cast<unsigned long long>(a[i]) / static_cast<unsigned long long>(b[i]));
}
KERNEL wide_integers(const unsigned long long* in, unsigned long long* out) {
  const unsigned __int128 a = (static_cast<unsigned __int128>(in[0]) << 64) | in[1];
  const unsigned __int128 b = (static_cast<unsigned __int128>(in[2]) << 64) | in[3];
  const unsigned __int128 sum = a + b, product = a * b, difference = a - b;
  out[0] = static_cast<unsigned long long>(sum >> 64);
  out[1] = static_cast<unsigned long long>(sum);
  out[2] = static_cast<unsigned long long>(product >> 64);
  out[3] = static_cast<unsigned long long>(product);
  out[4] = static_cast<unsigned long long>(difference >> 64);
  out[5] = static_cast<unsigned long long>(difference);
}
KERNEL intrinsics(const unsigned* a, const unsigned* b, unsigned* out) {
  const int i = threadIdx.x;
  out[i * 8] = __byte_perm(a[i], b[i], 0x5140);
  out[i * 8 + 1] = __funnelshift_l(a[i], b[i], 7);
  out[i * 8 + 2] = __dp4a(a[i], b[i], 5u);
  out[i * 8 + 3] = __vabsdiffu4(a[i], b[i]);
  out[i * 8 + 4] = __vaddus2(a[i], b[i]);
  out[i * 8 + 5] = __umulhi(a[i], b[i]);
  out[i * 8 + 6] = __usad(a[i], b[i], 1u);
  out[i * 8 + 7] = __float_as_uint(__fadd_rz(__uint_as_float(a[i] & 0x4fffffff), __uint_as_float(b[i] & 0x4fffffff)));
}
