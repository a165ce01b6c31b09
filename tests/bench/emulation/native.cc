#include "tests/bench/emulation/native.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "host-daemon/emulation/runtime/pool.h"

namespace smolvm::bench {
namespace {

// [0, n) in equal parts, one a core, on the threads that run the device's kernels.
template <typename F>
void Parallel(int n, F f) {
  using emulation::WorkPool;
  const int parts = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  std::atomic<int> next{0};
  const WorkPool::Work work = [&](bool) {
    for (int i; (i = next.fetch_add(1)) < parts;) {
      f(static_cast<int>(int64_t{n} * i / parts), static_cast<int>(int64_t{n} * (i + 1) / parts));
    }
    return WorkPool::Outcome::kDone;
  };
  WorkPool::Get().Run(work, static_cast<size_t>(parts - 1), 0);
}

float Normal(float d) {
  const float k = 1.0f / (1.0f + 0.2316419f * std::fabs(d));
  const float tail =
      0.39894228f * expf(-0.5f * d * d) *
      (k * (0.31938153f +
            k * (-0.356563782f + k * (1.781477937f + k * (-1.821255978f + k * 1.330274429f)))));
  return d > 0 ? 1.0f - tail : tail;
}

}  // namespace

void VectorAdd(const float* a, const float* b, float* c, int n) {
  Parallel(n, [=](int begin, int end) {
    for (int i = begin; i < end; ++i) c[i] = a[i] + b[i];
  });
}

void Multiply(const float* a, const float* b, float* c, int n) {
  Parallel(n, [=](int begin, int end) {
    for (int y = begin; y < end; ++y) {
      float* row = c + static_cast<size_t>(y) * n;
      std::fill(row, row + n, 0.0f);
      for (int k = 0; k < n; ++k) {
        const float factor = a[y * n + k];
        for (int x = 0; x < n; ++x) row[x] += factor * b[k * n + x];
      }
    }
  });
}

float Reduce(const float* in, int n) {
  std::mutex mutex;
  float total = 0;
  Parallel(n, [&](int begin, int end) {
    // Sixteen sums, so that the compiler may vectorise without -ffast-math, as a careful programmer
    // would write it.
    float sums[16] = {};
    int i = begin;
    for (; i + 16 <= end; i += 16) {
      for (int k = 0; k < 16; ++k) sums[k] += in[i + k];
    }
    for (; i < end; ++i) sums[0] += in[i];
    float sum = 0;
    for (const float part : sums) sum += part;
    std::lock_guard lock(mutex);
    total += sum;
  });
  return total;
}

void BlackScholes(const float* price, const float* strike, const float* years, float* call,
                  float* put, int n) {
  Parallel(n, [=](int begin, int end) {
    const float rate = 0.02f, volatility = 0.3f;
    for (int i = begin; i < end; ++i) {
      const float root = std::sqrt(years[i]);
      const float d1 =
          (logf(price[i] / strike[i]) + (rate + 0.5f * volatility * volatility) * years[i]) /
          (volatility * root);
      const float d2 = d1 - volatility * root;
      const float n1 = Normal(d1), n2 = Normal(d2), discount = expf(-rate * years[i]);
      call[i] = price[i] * n1 - strike[i] * discount * n2;
      put[i] = strike[i] * discount * (1.0f - n2) - price[i] * (1.0f - n1);
    }
  });
}

void Mandelbrot(int* out, int width, int height, int most) {
  std::atomic<int> next{0};
  Parallel(static_cast<int>(std::thread::hardware_concurrency()), [&](int begin, int end) {
    if (begin == end) return;
    for (int y; (y = next.fetch_add(1)) < height;) {
      for (int x = 0; x < width; ++x) {
        const float cr = -2.0f + 3.0f * static_cast<float>(x) / static_cast<float>(width);
        const float ci = -1.0f + 2.0f * static_cast<float>(y) / static_cast<float>(height);
        float zr = 0, zi = 0;
        int k = 0;
        while (k < most && zr * zr + zi * zi < 4.0f) {
          const float t = zr * zr - zi * zi + cr;
          zi = 2 * zr * zi + ci;
          zr = t;
          ++k;
        }
        out[y * width + x] = k;
      }
    }
  });
}

void Histogram(const uint8_t* in, unsigned* out, int n) {
  std::mutex mutex;
  Parallel(n, [&](int begin, int end) {
    unsigned bins[256] = {};
    for (int i = begin; i < end; ++i) ++bins[in[i]];
    std::lock_guard lock(mutex);
    for (int k = 0; k < 256; ++k) out[k] += bins[k];
  });
}

void Scan(const int* in, int* out, int n) {
  Parallel(n / 256, [=](int begin, int end) {
    for (int block = begin; block < end; ++block) {
      int sum = 0;
      for (int i = block * 256; i < block * 256 + 256; ++i) out[i] = sum += in[i];
    }
  });
}

void Transpose(const float* in, float* out, int n) {
  Parallel(n / 32, [=](int begin, int end) {
    for (int by = begin; by < end; ++by) {
      for (int bx = 0; bx < n / 32; ++bx) {
        for (int y = by * 32; y < by * 32 + 32; ++y) {
          for (int x = bx * 32; x < bx * 32 + 32; ++x) out[x * n + y] = in[y * n + x];
        }
      }
    }
  });
}

void NBody(const float* in, float* out, int n) {
  Parallel(n, [=](int begin, int end) {
    for (int i = begin; i < end; ++i) {
      float ax = 0, ay = 0, az = 0;
      for (int j = 0; j < n; ++j) {
        const float dx = in[4 * j] - in[4 * i], dy = in[4 * j + 1] - in[4 * i + 1],
                    dz = in[4 * j + 2] - in[4 * i + 2];
        const float inverse = 1.0f / std::sqrt(dx * dx + dy * dy + dz * dz + 0.01f);
        const float s = in[4 * j + 3] * inverse * inverse * inverse;
        ax += dx * s;
        ay += dy * s;
        az += dz * s;
      }
      out[4 * i] = ax;
      out[4 * i + 1] = ay;
      out[4 * i + 2] = az;
      out[4 * i + 3] = 0;
    }
  });
}

void Stencil(const float* in, float* out, int n) {
  Parallel(n - 2, [=](int begin, int end) {
    for (int y = begin + 1; y < end + 1; ++y) {
      for (int x = 1; x < n - 1; ++x) {
        out[y * n + x] = 0.2f * (in[y * n + x] + in[y * n + x - 1] + in[y * n + x + 1] +
                                 in[(y - 1) * n + x] + in[(y + 1) * n + x]);
      }
    }
  });
}

}  // namespace smolvm::bench
