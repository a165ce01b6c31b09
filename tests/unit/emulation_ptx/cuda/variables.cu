// Variables with initialisers, parameters of many types, templates.
__constant__ int ctab[64];
__device__ double dv = 2.5;
__device__ const char* str = "hello";
__device__ int arr[3][4] = {{1, 2}, {3}};
struct P {
  char c;
  int* p;
  short s;
} __attribute__((packed));
__device__ int tgt;
__device__ P pk = {1, &tgt, 2};
__device__ float4 f4 = {1, 2, 3, 4};
__device__ unsigned long long big = ~0ull;
__global__ void k(int* o, double x, char c, short s, float3 f, bool b) {
  o[0] = ctab[o[1] & 63] + dv * x + c + s + f.y + b + str[o[2]] + arr[o[1]][o[2]] + *pk.p + f4.z +
         (int)big;
}
template <class T, int N>
__global__ void tk(T* t) {
#pragma unroll 4
  for (int i = 0; i < N; i++) t[i] = t[i] * t[i] + i;
}
template __global__ void tk<float, 100>(float*);
template __global__ void tk<double, 37>(double*);
template __global__ void tk<long long, 64>(long long*);
template __global__ void tk<unsigned char, 64>(unsigned char*);
