// What remoting costs, each number beside a floor from the same run, in turns with it and on the
// same processors: both processes on one core, and each on its own.
//
//   bench_remoting [rounds]
//
// The daemon runs with the emulation device, on a Unix socket. Each number is the median of its
// rounds. The exit status says whether everything could be measured and whether it can be believed
// (a product that is faster than its floor cannot), not whether a target is met: that depends on
// the machine.
#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tests/bench/measure.h"
#include "tests/bench/placement.h"
#include "tests/bench/remoting/copies.h"
#include "tests/bench/remoting/cuda.h"
#include "tests/bench/remoting/daemon.h"
#include "tests/bench/remoting/floors.h"
#include "tests/bench/remoting/helpers.h"
#include "tests/bench/remoting/workloads.h"

namespace smolvm::bench {
namespace {

// As far away as a host in the next rack (SMOLVM_CUDA_EMULATE_RTT_US).
constexpr double kFarUs = 200;
// A worker is started behind each session that begins; the next process finds it ready.
constexpr useconds_t kWorkerStartsUs = 300'000;

// Of a process of its own, which inherits where this one runs.
HelperResult Helper(const char* name) {
  usleep(kWorkerStartsUs);
  return StartHelper(name);
}

HelperResult FarHelper(const char* name) {
  setenv("SMOLVM_CUDA_EMULATE_RTT_US", fmt::format("{:.0f}", kFarUs).c_str(), 1);
  const HelperResult result = Helper(name);
  unsetenv("SMOLVM_CUDA_EMULATE_RTT_US");
  return result;
}

std::string Us(double ms) { return fmt::format("{:.1f} us", ms * 1e3); }
std::string Ms(double ms) { return fmt::format("{:.2f} ms", ms); }

void AddTrip(const std::string& what, const Compared& compared, double most, Table& table) {
  table.Add({what, Us(compared.measured), Us(compared.floor), compared.cost,
             fmt::format("<= {} x", most), compared.cost <= most},
            compared);
}

void MeasureRoundTrips(int rounds, Peer& peer, const Cuda& cuda, Table& table) {
  CUstream idle = nullptr;
  Check(cuda.stream_create(&idle, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  const auto floor = [&] { return MedianMs([&] { peer.RoundTrip(); }); };
  const auto info = [&] {
    size_t free = 0, total = 0;
    Check(cuda.mem_get_info(&free, &total), "cuMemGetInfo");
  };
  const auto synchronize = [&] { Check(cuda.stream_synchronize(idle), "cuStreamSynchronize"); };
  AddTrip("cuMemGetInfo (ping-pong)", InTurns(rounds, floor, [&] { return MedianMs(info); }), 1.5,
          table);
  AddTrip("idle cuStreamSynchronize (ping-pong)",
          InTurns(rounds, floor, [&] { return MedianMs(synchronize); }), 1.5, table);
}

// The library that runs here, in a process that may use both sides' processors: nothing else does.
double LocalMemsetsMs(const Placement& placement) {
  BindProcess(getpid(), {placement.guest, placement.host});
  const double number = Helper("memsets").number;
  BindProcess(getpid(), {placement.guest});
  return number;
}

// With a host that is far away, in processes of their own. `near_ms`: what the memsets take
// otherwise.
void MeasureFar(int rounds, Peer& peer, const Placement& placement, double near_ms, Table& table) {
  const Compared trip = InTurns(
      rounds, [&] { return MedianMs([&] { peer.FarRoundTrip(kFarUs); }); },
      [&] { return FarHelper("trip").number; });
  AddTrip("cuMemGetInfo at 200 us (the same ping-pong)", trip, 1.25, table);
  const Compared memsets = InTurns(
      rounds, [&] { return LocalMemsetsMs(placement) + kFarUs * 1e-3; },
      [&] { return FarHelper("remote_memsets").number; });
  const double added = (memsets.measured - near_ms) * 1e3 / kFarUs;
  table.Add({"1,000 async memsets at 200 us (local + 200 us)", Us(memsets.measured),
             Us(memsets.floor), memsets.cost, "near + one trip", added <= 1.5},
            memsets);
}

// What they take, in milliseconds.
double MeasureMemsets(int rounds, const Placement& placement, Table& table) {
  const Compared compared = InTurns(
      rounds, [&] { return LocalMemsetsMs(placement); },
      [&] { return Helper("remote_memsets").number; });
  const auto rate = [](double ms) { return fmt::format("{:.0f} k/s", Memsets::kCalls / ms); };
  table.Add({"1,000 async memsets + synchronise (local)", rate(compared.measured),
             rate(compared.floor), compared.floor / compared.measured, ">= 300 k calls/s",
             Memsets::kCalls / compared.measured >= 300},
            compared);
  return compared.measured;
}

void MeasureStart(int rounds, Table& table) {
  const Compared compared = InTurns(
      rounds, [] { return Helper("nothing").wall_ms; }, [] { return Helper("first").wall_ms; });
  table.Add(
      {"process with cuInit and a first call (without)", Ms(compared.measured), Ms(compared.floor),
       compared.cost, "+ 10 ms", compared.measured - compared.floor <= 10},
      compared);
}

void MeasureMemory(Table& table) {
  const double memory = Helper("memory").number;
  table.Add({.what = "memory that the guest library adds",
             .measured = fmt::format("{:.1f} MB", memory),
             .target = "<= 10 MB",
             .met = memory <= 10});
}

void Place(const Placement& placement, const Daemon& daemon, const Peer& peer) {
  if (!BindProcess(getpid(), {placement.guest}) || !BindTree(daemon.pid(), {placement.host}) ||
      !BindTree(peer.pid(), {placement.host})) {
    Fail("processes cannot be bound to processors");
  }
}

int Run(int rounds) {
  Daemon daemon;
  setenv("SMOLVM_CUDA_ENDPOINT", daemon.endpoint().c_str(), 1);
  const std::vector<Placement> placements = Placements();
  Peer peer;
  const Cuda cuda = OpenCuda(GUEST_LIBRARY);
  Begin(cuda);
  Table table;
  const int few = std::max(1, rounds / 2);
  for (const Placement& placement : placements) {
    table.Heading(placement.name);
    Place(placement, daemon, peer);
    MeasureRoundTrips(rounds, peer, cuda, table);
    const double memsets_ms = MeasureMemsets(few, placement, table);
    MeasureFar(few, peer, placement, memsets_ms, table);
    MeasureCopies(rounds, peer, cuda, table);
    MeasureStart(rounds, table);
  }
  if (placements.size() == 1) table.Heading("two cores: this process may use but one");
  MeasureMemory(table);
  return table.Finish("bench_remoting");
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
