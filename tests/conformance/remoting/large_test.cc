// Copies of a gibibyte: that they arrive, and that a guest's death in the middle of one disturbs
// nobody.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iostream>

#include "tests/conformance/remoting/fixture.h"

namespace smolvm::remoting {
namespace {

constexpr uint64_t kMib = uint64_t{1} << 20;
constexpr double kCopySeconds = 200;

uint64_t AvailableMib() {
  std::ifstream file("/proc/meminfo");
  for (std::string word; file >> word;) {
    uint64_t kib = 0;
    if (word == "MemAvailable:" && file >> kib) return kib / 1024;
  }
  return 0;
}

// A gibibyte, or what memory allows: the guest has it once, the device once, and others are at work
// here too.
uint64_t CopyMib() {
  uint64_t mib = 1024;
  while (mib > 64 && mib * 3 > AvailableMib()) mib /= 2;
  if (mib < 1024) std::cerr << "copies of " << mib << " MiB only: there is too little memory\n";
  return mib;
}

class LargeCopy : public ::testing::Test {
 protected:
  const uint64_t mib_ = CopyMib();
  const std::string bytes_ = std::to_string(mib_ * kMib);
  Daemon daemon_{{"--emulation-memory", std::to_string(mib_ + 64) + "M"}};
};

TEST_F(LargeCopy, ArrivesWhole) {
  const auto guest = StartGuest(daemon_.socket(), {"large_copy", bytes_});
  EXPECT_EQ(guest->Wait(kCopySeconds), 0) << guest->output();
}

TEST_F(LargeCopy, KilledInTheMiddle) {
  const auto other = StartGuest(daemon_.socket(), {"steady"});
  ASSERT_TRUE(other->Await("ready")) << other->output();
  const auto guest = StartGuest(daemon_.socket(), {"large_copy_to_be_killed", bytes_});
  ASSERT_TRUE(guest->Await("ready", kCopySeconds)) << guest->output();
  const pid_t worker = daemon_.LastWorker();
  ASSERT_GT(worker, 0);
  usleep(100'000);
  guest->Kill(SIGKILL);
  EXPECT_EQ(guest->Wait(), 128 + SIGKILL);
  // The device's memory is the worker's, and free when that has gone: two seconds, on a machine
  // that is not busy.
  EXPECT_TRUE(Daemon::AwaitEnd(worker, 6));
  other->CloseInput();
  EXPECT_EQ(other->Wait(), 0) << other->output();
}

}  // namespace
}  // namespace smolvm::remoting
