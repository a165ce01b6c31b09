// How fast the emulation device runs kernels, as ratios to the same algorithm in C++ on all cores,
// in turns with it, on the same threads and in the same memory.
//
//   bench_emulation [rounds]
//
// The exit status is 1 when a result is wrong, or a kernel is faster than its C++ without a reason
// that is known.
// Needs nvcc ($CUDA_HOME/bin or /usr/local/cuda/bin).
#include <fmt/format.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "host-daemon/emulation/device/settings.h"
#include "host-daemon/emulation/runtime/program.h"
#include "tests/bench/emulation/native.h"
#include "tests/bench/measure.h"

namespace smolvm::bench {
namespace {

using emulation::Arena;
using emulation::LaunchConfig;
using emulation::Program;

// CPU time of all threads, in milliseconds: on a busy machine wall time says little.
double CpuMs() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

// Why some kernels are faster than their C++: what a programmer writes down there is compiled as it
// stands, without -ffast-math, and the compiler makes no vectors of it.
constexpr char kOneAtATime[] =
    "GCC takes one element at a time (calls of logf and expf, loops with an early end, sums in "
    "order); "
    "the device takes a thread a lane";

std::string CompileKernels() {
  const char* home = getenv("CUDA_HOME");
  const std::string nvcc = std::string(home != nullptr ? home : "/usr/local/cuda") + "/bin/nvcc";
  char directory[] = "/tmp/bench-emulation-XXXXXX";
  if (mkdtemp(directory) == nullptr) return "";
  const std::string out = std::string(directory) + "/kernels.ptx";
  const int status = system(
      (nvcc + " -ptx -arch=compute_90 " SMOLVM_SOURCE_DIR "/tests/bench/emulation/kernels.cu -o " +
       out)
          .c_str());
  std::stringstream text;
  if (status == 0) text << std::ifstream(out).rdbuf();
  std::filesystem::remove_all(directory);
  return text.str();
}

class Params {
 public:
  template <typename T>
  Params& operator<<(T value) {
    while (bytes_.size() % sizeof(T) != 0) bytes_.push_back(std::byte{0});
    bytes_.resize(bytes_.size() + sizeof(T));
    memcpy(bytes_.data() + bytes_.size() - sizeof(T), &value, sizeof(T));
    return *this;
  }
  std::span<const std::byte> span() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

class Bench {
 public:
  Bench(Program& program, Arena& arena, int rounds)
      : program_(program), arena_(arena), rounds_(rounds) {}

  template <typename T>
  T* Fill(size_t count, const std::function<T(size_t)>& value) {
    auto* to = reinterpret_cast<T*>(arena_.Allocate(count * sizeof(T)));
    if (to == nullptr) throw std::runtime_error("the arena is full");
    for (size_t i = 0; i < count; ++i) to[i] = value(i);
    return to;
  }

  size_t Kernel(const std::string& name) {
    for (size_t i = 0; i < program_.kernels().size(); ++i) {
      if (program_.kernels()[i].name == name) return i;
    }
    throw std::runtime_error("no kernel " + name);
  }

  void Compare(const std::string& name, double target, LaunchConfig config, const Params& params,
               const std::function<void()>& native, const std::function<bool()>& right,
               const char* known_faster = nullptr) {
    const size_t kernel = Kernel(name);
    const double compile_begin = CpuMs();
    if (program_.Compile(kernel) != CUDA_SUCCESS)
      throw std::runtime_error("cannot compile " + name);
    const double compile = CpuMs() - compile_begin;
    const auto timed = [](const std::function<void()>& run) {
      const double begin = CpuMs();
      run();
      return CpuMs() - begin;
    };
    const Compared compared = InTurns(
        rounds_, [&] { return timed(native); },
        [&] {
          return timed([&] {
            const CUresult result = program_.Launch(kernel, config, params.span());
            if (result == CUDA_SUCCESS) return;
            throw std::runtime_error(
                fmt::format("{} fails with {}", name, static_cast<int>(result)));
          });
        });
    table_.Add({.what = fmt::format("{} (compiled in {:.1f} ms)", name, compile),
                .measured = fmt::format("{:.2f} ms", compared.measured),
                .floor = fmt::format("{:.2f} ms", compared.floor),
                .ratio = compared.cost,
                .target = target > 0 ? fmt::format("<= {:.1f} x C++", target) : "",
                .met = compared.cost <= target},
               compared, known_faster);
    if (right()) return;
    failed_ = true;
    fmt::print("{:<46} WRONG RESULT\n", name);
  }

  void EmptyLaunch() {
    const size_t kernel = Kernel("empty");
    program_.Compile(kernel);
    const LaunchConfig config{{1, 1, 1}, {1, 1, 1}};
    double best = 1e30;
    for (int round = 0; round < 20; ++round) {
      const double begin = Now();
      for (int i = 0; i < 1000; ++i) program_.Launch(kernel, config, {});
      best = std::min(best, Now() - begin);
    }
    fmt::print("\nempty one-thread kernel, launched and run: {:.2f} us\n", best);
  }
  int Finish() const { return failed_ ? 1 : table_.Finish("bench_emulation"); }

 private:
  Program& program_;
  Arena& arena_;
  const int rounds_;
  Table table_;
  bool failed_ = false;
};

bool Near(double a, double b, double relative) {
  return std::fabs(a - b) <= relative * std::max(1.0, std::fabs(b));
}

void RunAll(Bench& bench) {
  const auto wave = [](size_t i) { return static_cast<float>((i * 2654435761u) % 1000) / 1000.0f; };
  {
    constexpr int n = 1 << 22;
    auto* a = bench.Fill<float>(n, wave);
    auto* b = bench.Fill<float>(n, wave);
    auto* c = bench.Fill<float>(n, [](size_t) { return 0.0f; });
    bench.Compare(
        "vector_add", 10, {{n / 256, 1, 1}, {256, 1, 1}}, Params() << a << b << c << n,
        [=] { VectorAdd(a, b, c, n); }, [=] { return c[12345] == a[12345] + b[12345]; });
  }
  for (const int tile : {16, 32}) {
    constexpr int n = 256;
    auto* a = bench.Fill<float>(n * n, wave);
    auto* b = bench.Fill<float>(n * n, wave);
    auto* c = bench.Fill<float>(n * n, [](size_t) { return 0.0f; });
    auto* expected = bench.Fill<float>(n * n, [](size_t) { return 0.0f; });
    const auto t = static_cast<uint32_t>(tile);
    bench.Compare(
        "matmul" + std::to_string(tile), 80, {{n / t, n / t, 1}, {t, t, 1}},
        Params() << a << b << c << n, [&, a, b] { Multiply(a, b, expected, n); },
        [&, c] { return Near(c[777], expected[777], 1e-4); });
  }
  {
    constexpr int n = 1 << 20;
    auto* in = bench.Fill<float>(n, wave);
    auto* out = bench.Fill<float>(1, [](size_t) { return 0.0f; });
    float expected = 0;
    bench.Compare(
        "reduce_shuffle", 250, {{n / 1024, 1, 1}, {256, 1, 1}}, Params() << in << out << n,
        [&, in] { expected = Reduce(in, n); }, [&, out] { return *out > 0; });
    *out = 0;
    bench.Compare(
        "reduce_tree", 250, {{n / 256, 1, 1}, {256, 1, 1}}, Params() << in << out << n,
        [&, in] { expected = Reduce(in, n); }, [&, out] { return *out > 0; });
  }
  {
    constexpr int n = 1 << 20;
    auto* price = bench.Fill<float>(n, [&](size_t i) { return 5 + 25 * wave(i); });
    auto* strike = bench.Fill<float>(n, [&](size_t i) { return 1 + 99 * wave(i + 7); });
    auto* years = bench.Fill<float>(n, [&](size_t i) { return 0.25f + 9.75f * wave(i + 3); });
    auto* call = bench.Fill<float>(n, [](size_t) { return 0.0f; });
    auto* put = bench.Fill<float>(n, [](size_t) { return 0.0f; });
    auto* c = bench.Fill<float>(n, [](size_t) { return 0.0f; });
    auto* p = bench.Fill<float>(n, [](size_t) { return 0.0f; });
    bench.Compare(
        "black_scholes", 1.5, {{n / 256, 1, 1}, {256, 1, 1}},
        Params() << price << strike << years << call << put << n,
        [&, price, strike, years] { BlackScholes(price, strike, years, c, p, n); },
        [&, call, put] { return Near(call[99], c[99], 1e-4) && Near(put[99], p[99], 1e-4); },
        kOneAtATime);
  }
  {
    constexpr int width = 1024, height = 512, most = 256;
    auto* out = bench.Fill<int>(width * height, [](size_t) { return 0; });
    auto* expected = bench.Fill<int>(width * height, [](size_t) { return 0; });
    bench.Compare(
        "mandelbrot", 1.5, {{width / 16, height / 16, 1}, {16, 16, 1}},
        Params() << out << width << height << most,
        [&] { Mandelbrot(expected, width, height, most); },
        // Contraction differs between the compilers: a few pixels on the edge may.
        [&, out] {
          int different = 0;
          for (int i = 0; i < width * height; ++i) different += out[i] != expected[i];
          return different < width * height / 100;
        },
        kOneAtATime);
  }
  {
    constexpr int n = 1 << 22;
    auto* in = bench.Fill<uint8_t>(
        n, [](size_t i) { return static_cast<uint8_t>((i * 2654435761u) >> 13); });
    auto* out = bench.Fill<unsigned>(256, [](size_t) { return 0u; });
    auto* expected = bench.Fill<unsigned>(256, [](size_t) { return 0u; });
    bench.Compare(
        "histogram", 0, {{64, 1, 1}, {256, 1, 1}}, Params() << in << out << n,
        [&, in] { Histogram(in, expected, n); },
        // Both add to what is there, and the floor runs twice a round.
        [&, out] { return 2 * out[5] == expected[5]; });
  }
  {
    constexpr int n = 1 << 20;
    auto* in = bench.Fill<int>(n, [](size_t i) { return static_cast<int>(i % 17); });
    auto* out = bench.Fill<int>(n, [](size_t) { return 0; });
    auto* expected = bench.Fill<int>(n, [](size_t) { return 0; });
    bench.Compare(
        "scan", 0, {{n / 256, 1, 1}, {256, 1, 1}}, Params() << in << out << n,
        [&, in] { Scan(in, expected, n); },
        [&, out] { return std::equal(expected, expected + n, out); });
  }
  {
    constexpr int n = 1024;
    auto* in = bench.Fill<float>(n * n, wave);
    auto* out = bench.Fill<float>(n * n, [](size_t) { return 0.0f; });
    auto* expected = bench.Fill<float>(n * n, [](size_t) { return 0.0f; });
    bench.Compare(
        "transpose", 0, {{n / 32, n / 32, 1}, {32, 8, 1}}, Params() << in << out << n,
        [&, in] { Transpose(in, expected, n); },
        [&, out] { return std::equal(expected, expected + n * n, out); });
    bench.Compare(
        "stencil", 0, {{n / 32, n / 8, 1}, {32, 8, 1}}, Params() << in << out << n,
        [&, in] { Stencil(in, expected, n); },
        [&, out] { return Near(out[n * 5 + 9], expected[n * 5 + 9], 1e-6); });
  }
  {
    constexpr int n = 2048;
    auto* in = bench.Fill<float>(4 * n, wave);
    auto* out = bench.Fill<float>(4 * n, [](size_t) { return 0.0f; });
    auto* expected = bench.Fill<float>(4 * n, [](size_t) { return 0.0f; });
    bench.Compare(
        "nbody", 0, {{n / 128, 1, 1}, {128, 1, 1}}, Params() << in << out << n,
        [&, in] { NBody(in, expected, n); }, [&, out] { return Near(out[40], expected[40], 1e-3); },
        kOneAtATime);
  }
}

int Main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, atoi(argv[1])) : 9;
  const std::string ptx = CompileKernels();
  if (ptx.empty()) {
    fmt::print(stderr, "bench_emulation: nvcc is needed to compile its kernels (set CUDA_HOME)\n");
    return 1;
  }
  Arena* arena = Arena::Create(size_t{1} << 30);
  if (arena == nullptr) {
    fmt::print(stderr, "bench_emulation: the arena's address range is taken\n");
    return 1;
  }
  // SMOLVM_CUDA_EMULATION_TIER=scalar shows what the vector tier is worth.
  std::string problem;
  const auto settings = emulation::ReadSettings(&problem);
  if (!settings) {
    fmt::print(stderr, "bench_emulation: {}\n", problem);
    return 1;
  }
  emulation::JitLog log;
  std::unique_ptr<Program> program;
  const emulation::LoadOptions options{.tier = settings->tier};
  if (Program::Load(ptx.c_str(), options, *arena, &log, &program) != CUDA_SUCCESS) {
    fmt::print(stderr, "{}\n", log.error);
    return 1;
  }
  fmt::print("CPU time of all cores, medians of {} rounds; the floor is C++\n\n", rounds);
  Bench bench(*program, *arena, rounds);
  RunAll(bench);
  bench.EmptyLaunch();
  return bench.Finish();
}

}  // namespace
}  // namespace smolvm::bench

int main(int argc, char** argv) { return smolvm::bench::Main(argc, argv); }
