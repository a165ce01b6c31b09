// See link_a.cu.
__device__ int shared_counter = 7;
static __device__ int mine = 2;
__device__ int Twice(int x) { return 2 * x + mine; }
__global__ void b(int* out) { out[0] = Twice(mine); }
