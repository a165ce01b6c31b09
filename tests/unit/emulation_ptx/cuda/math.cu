// Arithmetic and conversions.
__global__ void m(float* f, double* d, int* i, unsigned* u, long long* l, unsigned long long* ul,
                  short* s, char* c, unsigned char* uc) {
  f[0] = sinf(f[1]) + cosf(f[2]) * tanf(f[3]) + expf(f[4]) + logf(f[5]) + powf(f[6], f[7]) +
         sqrtf(f[8]) + rsqrtf(f[9]) + f[1] / f[2] + fmodf(f[3], f[4]) + tanhf(f[1]) + erff(f[2]) +
         lgammaf(f[3]) + cbrtf(f[4]) + ldexpf(f[5], i[0]) + rintf(f[1]) + floorf(f[2]) +
         ceilf(f[3]) + truncf(f[4]) + fabsf(f[5]) + fminf(f[1], f[2]) + copysignf(f[1], f[2]);
  f[1] = __sinf(f[1]) + __cosf(f[2]) + __expf(f[3]) + __logf(f[4]) + __fdividef(f[1], f[2]) +
         __frcp_rn(f[1]) + __fsqrt_rz(f[2]) + __fadd_ru(f[1], f[2]) + __fmul_rd(f[1], f[3]) +
         __fmaf_rz(f[1], f[2], f[3]) + __saturatef(f[4]);
  d[0] = sin(d[1]) + exp(d[2]) * pow(d[3], d[4]) + sqrt(d[5]) + d[6] / d[7] +
         __dadd_rd(d[1], d[2]) + fma(d[1], d[2], d[3]) + rint(d[4]) + lgamma(d[5]) + j0(d[6]);
  i[1] = i[2] / i[3] + i[4] % i[5] + __mulhi(i[6], i[7]) + __mul24(i[8], i[9]) +
         __sad(i[1], i[2], u[3]) + abs(i[1]) + min(i[1], i[2]) + (i[3] >> i[4]) + (i[3] << 2) +
         ~i[5] + __clz(i[1]) + __popc(u[1]) + __ffs(i[2]) + __brev(u[3]) +
         __byte_perm(u[1], u[2], 0x3210) + __funnelshift_l(u[1], u[2], u[3]) +
         __funnelshift_rc(u[1], u[2], u[3]) + __dp4a(i[1], i[2], i[3]) +
         __dp2a_lo(i[1], i[2], i[3]);
  u[1] = u[2] / u[3] + __umulhi(u[1], u[2]) + __fns(u[1], u[2], 3) + __vadd4(u[1], u[2]) +
         __vabsdiffu4(u[1], u[2]) + __vmaxs2(u[1], u[2]) + __vcmpeq4(u[3], u[4]);
  l[0] = l[1] / l[2] + l[3] * l[4] % l[5] + __mul64hi(l[1], l[2]) + __ffsll(l[2]) + __clzll(l[3]) +
         (l[4] >> i[0]);
  ul[0] = ul[1] / ul[2] + ul[3] % 7;
  __int128 x = l[1];
  x *= l[2];
  x += ul[3];
  l[3] = (long long)(x >> 64);
  s[0] = s[1] * s[2] + c[0];
  c[1] = uc[0] + s[3];
  f[3] = i[0];
  f[4] = u[0];
  d[1] = l[0];
  d[2] = ul[0];
  i[0] = f[5];
  u[0] = d[5];
  l[1] = f[6];
  s[1] = f[7];
  f[8] = d[8];
  i[5] = __float2int_ru(f[1]);
  i[6] = __double2int_rd(d[1]);
  f[9] = __int_as_float(i[3]);
  d[9] = __hiloint2double(i[1], i[2]);
}
