// f16, bf16 and fp8.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp4.h>
#include <cuda_fp8.h>
__global__ void h(__half* a, __half2* b, __nv_bfloat16* c, __nv_bfloat162* d, float* f,
                  __nv_fp8_e4m3* e, int* i) {
  a[0] = a[1] + a[2] * a[3];
  a[1] = hsqrt(a[4]);
  a[2] = hexp(a[3]);
  a[3] = __hfma(a[1], a[2], a[3]);
  a[4] = __hmax(a[5], a[6]);
  a[5] = a[1] / a[2];
  a[6] = htanh(a[1]);
  a[7] = hlog(a[1]);
  a[8] = hsin(a[1]);
  b[0] = __hfma2(b[1], b[2], b[3]);
  b[1] = __hmul2(b[1], b[2]);
  b[2] = __hmin2(b[1], b[3]);
  b[4] = h2rcp(b[1]);
  c[0] = c[1] * c[2] + c[3];
  d[0] = __hfma2(d[1], d[2], d[3]);
  c[1] = __hmax(c[2], c[3]);
  c[5] = hexp2(c[1]);
  f[0] = __half2float(a[9]);
  a[10] = __float2half_rz(f[1]);
  f[2] = __bfloat162float(c[4]);
  c[6] = __float2bfloat16(f[3]);
  i[0] = __half2int_rn(a[1]);
  a[11] = __int2half_rn(i[1]);
  e[0] = __nv_fp8_e4m3(f[4]);
  f[5] = float(e[1]);
  i[5] = a[1] < a[2];
  i[6] = __hlt2_mask(b[0], b[1]);
  b[7] = __floats2half2_rn(f[6], f[7]);
  i[7] = __hisnan(a[3]);
}
