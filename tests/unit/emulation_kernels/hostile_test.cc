// Random kernels that try to leave their memory, in both tiers, with canaries wherever they could
// get to: before and behind the arena, between the runtime's own pieces of scratch memory, on the
// heap and the stacks of this process, in other threads' local memory, in other blocks' shared
// memory and in the kernel's parameters.
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <span>
#include <sstream>
#include <string_view>

#include "host-daemon/emulation/runtime/scratch.h"
#include "tests/support/split_mix.h"
#include "tests/unit/emulation_kernels/hostile_kernel.h"
#include "tests/unit/emulation_runtime/program_fixture.h"

namespace smolvm::emulation {
namespace {

constexpr uint64_t kCanary = 0x5afe'ca9a'12de'ad00;
constexpr uint32_t kGrid = 3;
constexpr uint32_t kThreads = 40;  // rows that lanes do not fill
constexpr size_t kEdgeBytes = 64 << 10;

// So many launches for each attempt, and modules; scripts/soak has more of both.
uint32_t Times(const char* variable, uint32_t otherwise) {
  const char* text = getenv(variable);
  return text == nullptr ? otherwise : static_cast<uint32_t>(strtoul(text, nullptr, 10));
}

// Words that nobody but this test has a reason to touch.
class Canaries {
 public:
  void Watch(const char* name, void* address, size_t bytes) {
    Place place{name, {static_cast<uint64_t*>(address), bytes / 8}, {}};
    std::ranges::fill(place.words, kCanary);
    place.copy.assign(place.words.begin(), place.words.end());
    places_.push_back(std::move(place));
  }
  // Empty, or what has changed; it is put right.
  std::string Changed() {
    std::string changed;
    for (const Place& place : places_) {
      if (memcmp(place.words.data(), place.copy.data(), place.words.size_bytes()) == 0) continue;
      for (size_t k = 0; k < place.words.size(); ++k) {
        if (place.words[k] == kCanary) continue;
        changed += fmt::format("{}+{:#x} became {:#x}; ", place.name, 8 * k, place.words[k]);
        place.words[k] = kCanary;
      }
    }
    return changed;
  }
  void Forget(std::string_view name) {
    std::erase_if(places_, [&](const Place& place) { return place.name == name; });
  }
  uint64_t SomeAddress(Random& random) const {
    const Place& place = places_[random.Below(static_cast<uint32_t>(places_.size()))];
    return reinterpret_cast<uint64_t>(place.words.data()) +
           random.Below(static_cast<uint32_t>(place.words.size_bytes()));
  }

 private:
  struct Place {
    const char* name;
    std::span<uint64_t> words;
    std::vector<uint64_t> copy;
  };
  std::vector<Place> places_;
};

// Pieces of what windows are made of, so that those which launches get lie between them. Taken
// before the first launch of the process, and kept.
const std::vector<std::pair<uintptr_t, size_t>>& ScratchBetween() {
  static const auto* pieces = [] {
    constexpr int kOfEach = 9;
    auto* made = new std::vector<std::pair<uintptr_t, size_t>>;
    Scratch& scratch = Scratch::Of(TestArena());
    for (size_t bytes = Scratch::ClassOf(1); bytes <= 256 << 10; bytes *= 2) {
      std::array<uintptr_t, kOfEach> row;
      for (uintptr_t& piece : row) piece = scratch.Take(bytes);
      for (int k = 0; k < kOfEach; ++k) {
        if (k % 2 == 0) {
          made->emplace_back(row[k], bytes);
        } else {
          scratch.Put(row[k], bytes);
        }
      }
    }
    return made;
  }();
  return *pieces;
}

// Where this process may write, but for the arena.
std::vector<uint64_t> WritableAddresses() {
  std::vector<uint64_t> found;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    uint64_t begin = 0, end = 0;
    char dash = 0, may_read = 0, may_write = 0;
    std::istringstream(line) >> std::hex >> begin >> dash >> end >> may_read >> may_write;
    const bool in_arena =
        begin >= kArenaBase - kEdgeBytes && begin < kArenaBase + (uint64_t{1} << 40);
    if (may_write == 'w' && !in_arena) found.insert(found.end(), {begin, end - 64});
  }
  return found;
}

class HostileKernels : public ProgramTest {
 protected:
  void SetUp() override {
    Arena& arena = TestArena();
    Edge(kArenaBase - kEdgeBytes);
    Edge(kArenaBase + arena.reserved_bytes());
    for (const auto& [piece, bytes] : ScratchBetween()) {
      canaries_.Watch("scratch", reinterpret_cast<void*>(piece), bytes);
    }
    canaries_.Watch("heap", heap_.data(), sizeof heap_);
    out_ = Allocate<HostileOutput>(kGrid * kThreads);
    buffer_ = Allocate<uint8_t>(kHostileBuffer);
  }
  void TearDown() override {
    for (const uint64_t edge : edges_) munmap(reinterpret_cast<void*>(edge), kEdgeBytes);
    ProgramTest::TearDown();
  }

  void Edge(uint64_t at) {
    void* const wanted = reinterpret_cast<void*>(at);
    ASSERT_EQ(mmap(wanted, kEdgeBytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
              wanted);
    edges_.push_back(at);
    canaries_.Watch(at < kArenaBase ? "before the arena" : "behind the arena", wanted, kEdgeBytes);
  }
  struct Target {
    HostileBase base;
    uint64_t absolute = 0, delta = 0;
    bool is_foreign = false;  // far from all that a kernel may touch
  };

  static uint64_t Near(Random& random) {
    const uint64_t fine = random.Below(20) * random.Of({1, 4, 8, 16});
    switch (random.Below(5)) {
      case 0:
        return fine;
      case 1:
        return 0 - fine;
      case 2:
        return (uint64_t{1} << random.Below(64)) + random.Of({uint64_t{0}, ~uint64_t{7}, fine});
      case 3:
        return 4096 * random.Below(64) + random.Of({uint64_t{0}, ~uint64_t{15}, fine});
      default:
        return 0 - (uint64_t{1} << random.Below(64)) + fine;
    }
  }

  Target Choose(Random& random, bool in_lanes) {
    Target target{
        static_cast<HostileBase>(random.Below(static_cast<uint32_t>(HostileBase::kCount)))};
    const bool needs_local = target.base == HostileBase::kLocal ||
                             target.base == HostileBase::kLocalOffset ||
                             target.base == HostileBase::kFunction;
    if (in_lanes && needs_local) target.base = HostileBase::kNothing;
    if (target.base != HostileBase::kNothing) {
      target.delta = Near(random);
      return target;
    }
    const Arena& arena = TestArena();
    const uint64_t end = kArenaBase + arena.device_bytes();
    switch (random.Below(8)) {
      case 0:
        target.absolute = kArenaBase - random.Below(64);
        break;
      case 1:
        target.absolute = end + Near(random);
        break;
      case 2:
        target.absolute = end + random.Below(16 << 20);
        break;
      case 3:
        target.absolute = kArenaBase + arena.reserved_bytes() + Near(random);
        break;
      case 4:
        target.absolute = reinterpret_cast<uint64_t>(buffer_) + random.Below(kHostileBuffer);
        break;
      case 5:
        target.absolute = canaries_.SomeAddress(random);
        break;
      case 6:
        target.absolute =
            writable_[random.Below(static_cast<uint32_t>(writable_.size()))] + 8 * random.Below(8);
        target.is_foreign = true;
        break;
      default:
        target.absolute = Near(random);
        // Not where the arena may be found by an attempt's own offset.
        target.is_foreign = target.absolute < kArenaBase / 2 || target.absolute > 2 * kArenaBase;
    }
    return target;
  }

  static bool IsAnEnd(CUresult result) {
    switch (result) {
      case CUDA_SUCCESS:
      case CUDA_ERROR_ILLEGAL_ADDRESS:
      case CUDA_ERROR_MISALIGNED_ADDRESS:
      case CUDA_ERROR_INVALID_PC:
      case CUDA_ERROR_HARDWARE_STACK_ERROR:
      case CUDA_ERROR_ILLEGAL_INSTRUCTION:
      case CUDA_ERROR_LAUNCH_FAILED:
        return true;
      default:
        return false;
    }
  }

  // What speaks against the launch, or "".
  std::string Launch(const HostileAttempt& attempt, uint32_t index, const Target& target,
                     Random& random) {
    const uint32_t salt = ++salt_;
    const bool one = random.OneIn(2);
    HostileParams params{.out = reinterpret_cast<uint64_t>(out_),
                         .buffer = reinterpret_cast<uint64_t>(buffer_),
                         .absolute = target.absolute,
                         .delta = target.delta,
                         .base = target.base,
                         .attempt = index,
                         .mask = one ? 63u : 1u,
                         .value = one ? random.Below(kThreads) : random.Below(2),
                         .salt = salt,
                         .canary = {}};
    for (uint32_t k = 0; k < 4; ++k) params.canary[k] = HostilePattern(salt, 0xf, 0xfff, k);
    const HostileParams before = params;
    std::fill_n(out_, kGrid * kThreads, HostileOutput{});
    const LaunchConfig config{
        .grid = {kGrid, 1, 1}, .block = {kThreads, 1, 1}, .timeout_ms = 20000};
    const CUresult result =
        program_->Launch(KernelNamed("hostile"), config, std::as_bytes(std::span(&params, 1)));
    ++launches_;
    std::string wrong = canaries_.Changed();
    if (memcmp(&params, &before, sizeof params) != 0) wrong += "the launch's own parameters; ";
    if (!IsAnEnd(result)) wrong += fmt::format("result {}; ", static_cast<int>(result));
    if (result != CUDA_SUCCESS) return wrong;
    if (target.is_foreign && attempt.dereferences) wrong += "a foreign address was taken; ";
    for (uint32_t k = 0; k < kGrid * kThreads; ++k) {
      const uint64_t verdict = out_[k].verdict;
      if (verdict != (uint64_t{salt} << 32 | kIntact))
        wrong += fmt::format("thread {} says {:#x}; ", k, verdict);
      if (out_[k].value == kCanary) wrong += fmt::format("thread {} read a canary; ", k);
    }
    return wrong;
  }

  void Try(const HostileModule& module, bool in_lanes, uint64_t seed, uint32_t launches) {
    JitLog log;
    const Tier tier = in_lanes ? Tier::kVector : Tier::kScalar;
    program_.reset();
    ASSERT_EQ(Program::Load(module.text.c_str(), {.compute_capability = 90, .tier = tier},
                            TestArena(), &log, &program_),
              CUDA_SUCCESS)
        << log.error << "\n"
        << module.text;
    Random random(seed);
    // An attempt that nobody picks: the kernel and its checks are right.
    const auto none = static_cast<uint32_t>(module.attempts.size());
    ASSERT_EQ(Launch({"none"}, none, {HostileBase::kNothing}, random), "") << module.text;
    writable_ = WritableAddresses();
    std::array<uint64_t, 512> here;
    canaries_.Watch("stack", here.data(), sizeof here);
    for (uint32_t n = 0; n < launches * module.attempts.size(); ++n) {
      const uint32_t index = n % module.attempts.size();
      const HostileAttempt& attempt = module.attempts[index];
      const Target target = Choose(random, in_lanes);
      const std::string wrong = Launch(attempt, index, target, random);
      ASSERT_EQ(wrong, "") << attempt.text << "\nbase " << static_cast<int>(target.base) << ", "
                           << fmt::format("{:#x} + {:#x}", target.absolute, target.delta)
                           << ", seed " << seed << (in_lanes ? ", in lanes" : "") << "\n"
                           << module.text;
    }
    canaries_.Forget("stack");
  }

  Canaries canaries_;
  std::array<uint64_t, 4096> heap_;
  std::vector<uint64_t> edges_, writable_;
  HostileOutput* out_ = nullptr;
  uint8_t* buffer_ = nullptr;
  uint32_t salt_ = 0;
  uint64_t launches_ = 0;
};

// Every attempt there is.
TEST_F(HostileKernels, EachAttemptStaysInside) {
  const uint32_t launches = Times("SMOLVM_TEST_ROUNDS", 40);
  const uint64_t seed = Times("SMOLVM_TEST_SEED", 1);
  for (const bool in_lanes : {false, true}) {
    for (size_t part = 0; part < CompleteHostileParts(in_lanes); ++part) {
      Try(MakeCompleteHostileModule(in_lanes, part), in_lanes, seed * 100 + part, launches);
      if (HasFatalFailure()) return;
    }
  }
  RecordProperty("launches", static_cast<int>(launches_));
}

// In other orders, at other offsets.
TEST_F(HostileKernels, StayInside) {
  const uint32_t launches = Times("SMOLVM_TEST_ROUNDS", 40);
  const uint64_t seed = Times("SMOLVM_TEST_SEED", 1);
  for (uint64_t module = 0; module < 2; ++module) {
    for (const bool in_lanes : {false, true}) {
      Try(MakeHostileModule(seed * 1000 + module, in_lanes), in_lanes, seed * 1000 + module,
          launches);
      if (HasFatalFailure()) return;
    }
  }
  RecordProperty("launches", static_cast<int>(launches_));
}

}  // namespace
}  // namespace smolvm::emulation
