// Textures, surfaces, matrices, asynchronous copies: parsed, so that they can be refused by name.
#include <cuda_pipeline.h>
#include <mma.h>

#include <cuda/barrier>
using namespace nvcuda;
__global__ void t(cudaTextureObject_t x, cudaSurfaceObject_t s, float* o) {
  o[0] = tex2D<float>(x, o[1], o[2]);
  float4 f = tex3D<float4>(x, 1, 2, 3);
  o[1] = f.x;
  o[2] = tex1Dfetch<float>(x, 3);
  o[3] = tex2DLod<float>(x, 1, 2, 3);
  o[4] = tex2DGrad<float>(x, 1, 2, {1, 2}, {3, 4});
  o[5] = texCubemap<float>(x, 1, 2, 3);
  o[6] = tex2DLayered<float>(x, 1, 2, 3);
  float4 g = tex2Dgather<float4>(x, 1, 2, 0);
  o[7] = g.y;
  int v;
  surf2Dread(&v, s, 4, 5);
  surf2Dwrite(v, s, 5, 6);
  surf3Dwrite(v, s, 5, 6, 7, cudaBoundaryModeClamp);
}
__global__ void w(half* a, half* b, float* c) {
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> A;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> B;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> C;
  wmma::fill_fragment(C, 0.f);
  wmma::load_matrix_sync(A, a, 16);
  wmma::load_matrix_sync(B, b, 16);
  wmma::mma_sync(C, A, B, C);
  wmma::store_matrix_sync(c, C, 16, wmma::mem_row_major);
}
__global__ void p(int* g) {
  __shared__ int s[256];
  __pipeline_memcpy_async(&s[threadIdx.x], g + threadIdx.x, 4);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __shared__ cuda::barrier<cuda::thread_scope_block> b;
  if (threadIdx.x == 0) init(&b, blockDim.x);
  __syncthreads();
  b.arrive_and_wait();
  cuda::memcpy_async(s, g, sizeof(s), b);
  b.arrive_and_wait();
  g[0] = s[1];
}
#if __CUDA_ARCH__ >= 900
#include <cuda/ptx>
#endif
__global__ void pdl(int* g) {
  cudaGridDependencySynchronize();
  g[0] = 1;
  cudaTriggerProgrammaticLaunchCompletion();
}
