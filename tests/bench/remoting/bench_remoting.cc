// What remoting costs, each number beside a floor from the same run, in turns with it.
//
//   bench_remoting [rounds]
//
// The daemon runs with the emulation device, on a Unix socket. A machine that does other things
// lengthens single runs, so each number is the best of several, the floor's too. The exit status
// says whether everything could be measured, not whether a target is met: that depends on the
// machine.
#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tests/bench/remoting/cuda.h"
#include "tests/bench/remoting/daemon.h"
#include "tests/bench/remoting/floors.h"
#include "tests/bench/remoting/helpers.h"
#include "tests/bench/remoting/workloads.h"

namespace smolvm::bench {
namespace {

constexpr size_t kCopyBytes = size_t{64} << 20;
// As far away as a host in the next rack (SMOLVM_CUDA_EMULATE_RTT_US).
constexpr double kFarUs = 200;
// A worker is started behind each session that begins; the next process finds it ready.
constexpr useconds_t kWorkerStartsUs = 300'000;

enum class Target { kAtMost, kAtLeast };

void PrintHead() {
  fmt::print("{:<44} {:>14} {:>14} {:>7}  {:<18} {}\n", "what", "measured", "floor", "ratio",
             "target", "");
}

void PrintRow(const std::string& what, const std::string& measured, const std::string& floor,
              double ratio, Target kind, double value, double limit, const std::string& target) {
  const bool met = kind == Target::kAtMost ? value <= limit : value >= limit;
  fmt::print("{:<44} {:>14} {:>14} {:>7.2f}  {:<18} {}\n", what, measured, floor, ratio, target,
             met ? "ok" : "miss");
  fflush(stdout);
}

struct Best {
  double floor = 1e30, measured = 1e30;
};

// In turns, so that both see the same machine.
Best InTurns(int rounds, const std::function<double()>& floor,
             const std::function<double()>& measured) {
  Best best;
  for (int i = 0; i < rounds; ++i) {
    best.floor = std::min(best.floor, floor());
    best.measured = std::min(best.measured, measured());
  }
  return best;
}

void MeasureRoundTrip(const std::string& what, int rounds, Peer& peer,
                      const std::function<void()>& call) {
  const Best best = InTurns(
      rounds, [&] { return MedianUs([&] { peer.RoundTrip(); }); }, [&] { return MedianUs(call); });
  const double ratio = best.measured / best.floor;
  PrintRow(what, fmt::format("{:.1f} us", best.measured), fmt::format("{:.1f} us", best.floor),
           ratio, Target::kAtMost, ratio, 1.5, "<= 1.5 x ping-pong");
}

// Milliseconds of the memsets.
double MeasureMemsets(int rounds, const Cuda& cuda) {
  Memsets memsets(cuda);
  const Best best = InTurns(
      rounds, [] { return StartHelper("memsets").number; },
      [&] {
        double run = memsets.Run();
        for (int i = 0; i < 20; ++i) run = std::min(run, memsets.Run());
        return run;
      });
  const auto rate = [](double ms) { return Memsets::kCalls / ms; };
  PrintRow("1,000 async memsets + synchronise (local)",
           fmt::format("{:.0f} k/s", rate(best.measured)),
           fmt::format("{:.0f} k/s", rate(best.floor)), best.floor / best.measured,
           Target::kAtLeast, rate(best.measured), 300, ">= 300 k calls/s");
  return best.measured;
}

// The same calls with a host that is far away, in processes of their own. `near_ms`: what the
// memsets take otherwise.
void MeasureFar(int rounds, Peer& peer, double near_ms) {
  const auto far = [](const char* helper) {
    setenv("SMOLVM_CUDA_EMULATE_RTT_US", fmt::format("{:.0f}", kFarUs).c_str(), 1);
    usleep(kWorkerStartsUs);
    const double number = StartHelper(helper).number;
    unsetenv("SMOLVM_CUDA_EMULATE_RTT_US");
    return number;
  };
  const Best sync = InTurns(
      rounds, [&] { return kFarUs + MedianUs([&] { peer.RoundTrip(); }); },
      [&] { return far("trip"); });
  PrintRow("cuMemGetInfo at 200 us (200 us + ping-pong)", fmt::format("{:.1f} us", sync.measured),
           fmt::format("{:.1f} us", sync.floor), sync.measured / sync.floor, Target::kAtMost,
           sync.measured / sync.floor, 1.25, "<= 1.25 x");
  const Best memsets = InTurns(
      rounds, [&] { return near_ms; }, [&] { return far("remote_memsets"); });
  const double added = (memsets.measured - memsets.floor) * 1e3 / kFarUs;
  PrintRow("1,000 async memsets at 200 us (near)", fmt::format("{:.0f} us", memsets.measured * 1e3),
           fmt::format("{:.0f} us", memsets.floor * 1e3), memsets.measured / memsets.floor,
           Target::kAtMost, added, 1.5, "+ one round trip");
}

void PrintBandwidth(const std::string& what, const Best& best) {
  const auto rate = [](double ms) { return kCopyBytes / ms * 1e-6; };
  const double ratio = best.floor / best.measured;
  PrintRow(what, fmt::format("{:.2f} GB/s", rate(best.measured)),
           fmt::format("{:.2f} GB/s", rate(best.floor)), ratio, Target::kAtLeast, ratio, 0.75,
           ">= 0.75 x stream");
}

double TimeMs(const std::function<void()>& work) {
  const double begin = Now();
  work();
  return Now() - begin;
}

void MeasureCopies(int rounds, Peer& peer, const Cuda& cuda) {
  std::vector<unsigned> there(kCopyBytes / sizeof(unsigned)), back(there.size());
  unsigned value = 1;
  for (unsigned& word : there) word = value = value * 1664525 + 1013904223;
  CUdeviceptr device = 0;
  Check(cuda.alloc(&device, kCopyBytes), "cuMemAlloc");
  auto* out = reinterpret_cast<char*>(there.data());
  auto* in = reinterpret_cast<char*>(back.data());
  const Best up = InTurns(
      rounds, [&] { return TimeMs([&] { peer.Send(out, kCopyBytes); }); },
      // The copy returns when the bytes are taken; the call behind it waits until they have
      // arrived.
      [&] {
        return TimeMs([&] {
          Check(cuda.to_device(device, out, kCopyBytes), "cuMemcpyHtoD");
          Check(cuda.stream_synchronize(nullptr), "cuStreamSynchronize");
        });
      });
  PrintBandwidth("64 MiB host to device", up);
  const Best down = InTurns(
      rounds, [&] { return TimeMs([&] { peer.Receive(in, kCopyBytes); }); },
      [&] { return TimeMs([&] { Check(cuda.to_host(in, device, kCopyBytes), "cuMemcpyDtoH"); }); });
  PrintBandwidth("64 MiB device to host", down);
  if (there != back) Fail("64 MiB came back changed");
  Check(cuda.free(device), "cuMemFree");
}

void MeasureStart(int rounds) {
  const Best best = InTurns(
      rounds, [] { return StartHelper("nothing").wall_ms; },
      [&] {
        usleep(kWorkerStartsUs);
        return StartHelper("first").number;
      });
  PrintRow("load + cuInit + first call (process start)", fmt::format("{:.2f} ms", best.measured),
           fmt::format("{:.2f} ms", best.floor), best.measured / best.floor, Target::kAtMost,
           best.measured, 10, "<= 10 ms");
  usleep(kWorkerStartsUs);
  const double memory = StartHelper("memory").number;
  PrintRow("memory that the guest library adds", fmt::format("{:.1f} MB", memory), "0 MB", memory,
           Target::kAtMost, memory, 10, "<= 10 MB");
}

int Run(int rounds) {
  Daemon daemon;
  setenv("SMOLVM_CUDA_ENDPOINT", daemon.endpoint().c_str(), 1);
  Peer peer;
  const Cuda cuda = OpenCuda(GUEST_LIBRARY);
  Begin(cuda);
  CUstream idle = nullptr;
  Check(cuda.stream_create(&idle, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  PrintHead();
  MeasureRoundTrip("cuMemGetInfo (socket ping-pong)", rounds, peer, [&] {
    size_t free = 0, total = 0;
    Check(cuda.mem_get_info(&free, &total), "cuMemGetInfo");
  });
  MeasureRoundTrip("idle cuStreamSynchronize (socket ping-pong)", rounds, peer,
                   [&] { Check(cuda.stream_synchronize(idle), "cuStreamSynchronize"); });
  MeasureFar(std::max(1, rounds / 2), peer, MeasureMemsets(std::max(1, rounds / 2), cuda));
  MeasureCopies(rounds, peer, cuda);
  // Of the whole process only few runs fit between what else a busy machine does.
  MeasureStart(3 * rounds);
  return 0;
}

}  // namespace
}  // namespace smolvm::bench

int main(int argc, char** argv) {
  if (argc == 3 && strcmp(argv[1], "--helper") == 0) return smolvm::bench::RunHelper(argv[2]);
  const int rounds = argc > 1 ? atoi(argv[1]) : 10;
  if (argc > 2 || rounds < 1) {
    fmt::print(stderr, "usage: bench_remoting [rounds]\n");
    return 2;
  }
  return smolvm::bench::Run(rounds);
}
