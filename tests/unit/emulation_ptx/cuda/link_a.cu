// With link_b.cu: relocatable device code across two files.
extern __device__ int shared_counter;
extern __device__ int Twice(int x);
static __device__ int mine = 1;
__global__ void a(int* out) { out[threadIdx.x] = Twice(shared_counter) + mine; }
int main() {
  int* out;
  cudaMalloc(&out, 128);
  a<<<1, 32>>>(out);
  return cudaDeviceSynchronize();
}
