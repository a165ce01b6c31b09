// The same algorithms in C++, on all cores: what bench_emulation divides by. native.cc is built
// with -O3 -march=native, without -ffast-math.
#pragma once

#include <cstdint>

namespace smolvm::bench {

void VectorAdd(const float* a, const float* b, float* c, int n);
void Multiply(const float* a, const float* b, float* c, int n);
float Reduce(const float* in, int n);
void BlackScholes(const float* price, const float* strike, const float* years, float* call,
                  float* put, int n);
void Mandelbrot(int* out, int width, int height, int most);
void Histogram(const uint8_t* in, unsigned* out, int n);
void Scan(const int* in, int* out, int n);
void Transpose(const float* in, float* out, int n);
void NBody(const float* in, float* out, int n);
void Stencil(const float* in, float* out, int n);

}  // namespace smolvm::bench
