// Control flow, calls, virtual functions, printf, assert, local memory.
#include <cassert>
#include <cstdio>
struct B {
  __device__ virtual int f(int x) { return x; }
  __device__ virtual ~B() {}
};
struct D : B {
  int k;
  __device__ D(int k) : k(k) {}
  __device__ int f(int x) override { return x * k; }
};
typedef int (*fn)(int);
__device__ int fa(int x) { return x + 1; }
__device__ int fb(int x) { return x * 2; }
__device__ fn tab[2] = {fa, fb};
__device__ __noinline__ int fact(int n) { return n < 2 ? 1 : n * fact(n - 1); }
struct S {
  int a[10];
  double d;
  char c;
};
__device__ __noinline__ S mk(S s, int k) {
  s.a[k] = k;
  s.d += 1;
  return s;
}
__managed__ int mg = 3;
extern __shared__ int dyn[];
__global__ void __launch_bounds__(256, 2) k(int* o, int n, S s) {
  switch (n) {
    case 0:
      o[0] = 1;
      break;
    case 1:
      o[1] = 3;
      break;
    case 2:
      o[2] = 7;
      break;
    case 3:
      o[3] = 9;
      break;
    case 4:
      o[5] = 11;
      break;
    case 7:
      o[6] = 2;
      break;
    default:
      o[9] = 1;
  }
  B* b = n & 1 ? new D(3) : new B;
  o[10] = b->f(n);
  delete b;
  o[11] = tab[n & 1](n);
  o[12] = fact(n);
  S t = mk(s, n);
  o[13] = t.a[n];
  dyn[threadIdx.x] = n;
  __syncthreads();
  o[14] = dyn[n];
  int loc[32];
  for (int i = 0; i < 32; i++) loc[i] = o[i];
  for (int i = 0; i < n; i++) loc[loc[i] & 31]++;
  o[15] = loc[n & 31];
  if (n == 77) printf("%d %f %s\n", n, s.d, "x");
  assert(n != 78);
  if (n == 79) __trap();
  void* p = malloc(n);
  o[16] = p != 0;
  free(p);
  mg++;
  o[17] = clock() + clock64();
  o[18] = n ? alloca(n) != 0 : 0;
  if (n == 5) return;
  for (;;) {
    if (atomicAdd(o, 1) > 5) break;
    __nanosleep(100);
  }
  double2 v = ((double2*)o)[3];
  ((double2*)o)[4] = make_double2(v.y, v.x);
  float4 q = ((float4*)o)[3];
  ((float4*)o)[7] = q;
  o[19] = __ldg(o + 3);
  __stcs(o + 20, __ldcg(o + 4));
  o[21] = __isGlobal(o) + __isShared(dyn);
}
