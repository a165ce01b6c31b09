#include "tests/bench/remoting/copies.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace smolvm::bench {
namespace {

constexpr size_t kMib = size_t{1} << 20;
constexpr size_t kSizes[] = {1 * kMib, 4 * kMib, 16 * kMib, 64 * kMib, 256 * kMib};
// A round of small copies is this many bytes of them, so that it takes milliseconds.
constexpr size_t kLeastBytes = 16 * kMib;
constexpr double kTarget = 0.85;

// Milliseconds of one run, of as many as make a round.
std::function<double()> Timed(size_t size, std::function<void()> run) {
  const size_t runs = std::max<size_t>(1, kLeastBytes / size);
  return [runs, run = std::move(run)] {
    const double begin = Now();
    for (size_t i = 0; i < runs; ++i) run();
    return (Now() - begin) / static_cast<double>(runs);
  };
}

void PrintBandwidth(const std::string& what, size_t size, const Compared& compared, Table& table) {
  const auto rate = [&](double ms) {
    return fmt::format("{:.2f} GB/s", static_cast<double>(size) / ms * 1e-6);
  };
  const double ratio = 1 / compared.cost;
  table.Add({fmt::format("{:>3} MiB {}", size / kMib, what), rate(compared.measured),
             rate(compared.floor), ratio, fmt::format(">= {} x stream", kTarget), ratio >= kTarget},
            compared);
}

// The host's two buffers: what goes out, and what comes back. Floor and product use the same.
struct HostBuffers {
  char* out;
  char* in;
};

void FillIncompressible(char* data, size_t size) {
  uint64_t state = 0x9E3779B97F4A7C15;
  for (size_t i = 0; i + sizeof state <= size; i += sizeof state) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    memcpy(data + i, &state, sizeof state);
  }
}

class Copies {
 public:
  Copies(int rounds, Peer& peer, const Cuda& cuda, Table& table)
      : rounds_(rounds), peer_(peer), cuda_(cuda), table_(table) {
    Check(cuda_.stream_create(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  }

  // Copies to the device return when the bytes are taken; the call behind them waits until they
  // have arrived.
  void Pageable(const HostBuffers& host, size_t size) {
    Both(
        host, size, "pageable",
        [&](CUdeviceptr device) {
          Check(cuda_.to_device(device, host.out, size), "cuMemcpyHtoD");
          Check(cuda_.stream_synchronize(nullptr), "cuStreamSynchronize");
        },
        [&](CUdeviceptr device) { Check(cuda_.to_host(host.in, device, size), "cuMemcpyDtoH"); });
  }
  void Pinned(const HostBuffers& host, size_t size) {
    Both(
        host, size, "pinned",
        [&](CUdeviceptr device) {
          Check(cuda_.to_device_async(device, host.out, size, stream_), "cuMemcpyHtoDAsync");
          Check(cuda_.stream_synchronize(stream_), "cuStreamSynchronize");
        },
        [&](CUdeviceptr device) {
          Check(cuda_.to_host_async(host.in, device, size, stream_), "cuMemcpyDtoHAsync");
          Check(cuda_.stream_synchronize(stream_), "cuStreamSynchronize");
        });
  }

  // Neither side has touched its memory before; both have just given back as much.
  void FirstTouch(const HostBuffers& host, size_t size) {
    CUdeviceptr device = Allocate(size);
    const Compared compared = InTurns(
        rounds_,
        [&] {
          peer_.Renew(size);
          return Timed(kLeastBytes, [&] { peer_.Send(host.out, size); })();
        },
        [&] {
          Check(cuda_.free(device), "cuMemFree");
          device = Allocate(size);
          return Timed(kLeastBytes, [&] {
            Check(cuda_.to_device(device, host.out, size), "cuMemcpyHtoD");
            Check(cuda_.stream_synchronize(nullptr), "cuStreamSynchronize");
          })();
        });
    Check(cuda_.free(device), "cuMemFree");
    PrintBandwidth("to the device, its first touch", size, compared, table_);
  }

 private:
  using Copy = std::function<void(CUdeviceptr)>;

  CUdeviceptr Allocate(size_t size) {
    CUdeviceptr device = 0;
    Check(cuda_.alloc(&device, size), "cuMemAlloc");
    return device;
  }

  void Both(const HostBuffers& host, size_t size, const char* kind, const Copy& up,
            const Copy& down) {
    const CUdeviceptr device = Allocate(size);
    PrintBandwidth(fmt::format("to the device, {}", kind), size,
                   InTurns(rounds_, Timed(size, [&] { peer_.Send(host.out, size); }),
                           Timed(size, [&] { up(device); })),
                   table_);
    memset(host.in, 0, size);
    PrintBandwidth(fmt::format("from the device, {}", kind), size,
                   InTurns(rounds_, Timed(size, [&] { peer_.Receive(host.in, size); }),
                           Timed(size, [&] { down(device); })),
                   table_);
    // The last to write there was the floor.
    memset(host.in, 0, size);
    down(device);
    if (memcmp(host.out, host.in, size) != 0) Fail("bytes came back changed");
    Check(cuda_.free(device), "cuMemFree");
  }

  const int rounds_;
  Peer& peer_;
  const Cuda& cuda_;
  Table& table_;
  CUstream stream_ = nullptr;
};

}  // namespace

void MeasureCopies(int rounds, Peer& peer, const Cuda& cuda, Table& table) {
  const size_t most = *std::max_element(std::begin(kSizes), std::end(kSizes));
  std::vector<char> out(most), in(most);
  FillIncompressible(out.data(), most);
  void *pinned_out = nullptr, *pinned_in = nullptr;
  Check(cuda.host_alloc(&pinned_out, most, 0), "cuMemHostAlloc");
  Check(cuda.host_alloc(&pinned_in, most, 0), "cuMemHostAlloc");
  memcpy(pinned_out, out.data(), most);
  Copies copies(rounds, peer, cuda, table);
  for (const size_t size : kSizes) {
    copies.Pageable({out.data(), in.data()}, size);
    copies.Pinned({static_cast<char*>(pinned_out), static_cast<char*>(pinned_in)}, size);
  }
  for (const size_t size : {64 * kMib, 256 * kMib})
    copies.FirstTouch({out.data(), in.data()}, size);
  Check(cuda.host_free(pinned_out), "cuMemFreeHost");
  Check(cuda.host_free(pinned_in), "cuMemFreeHost");
}

}  // namespace smolvm::bench
