// That what is measured runs where it was put, with all of its threads and children.
#include "tests/bench/placement.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <latch>
#include <thread>

namespace smolvm::bench {
namespace {

// The one processor that a thread is bound to; -1 when there are several.
int ProcessorOf(pid_t thread) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(thread, sizeof set, &set) != 0 || CPU_COUNT(&set) != 1) return -1;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) return i;
  }
  return -1;
}

TEST(Placement, BeginsWithOneCore) {
  const std::vector<Placement> placements = Placements();
  ASSERT_FALSE(placements.empty());
  EXPECT_EQ(placements[0].guest, placements[0].host);
  if (placements.size() > 1) {
    EXPECT_NE(placements[1].guest, placements[1].host);
  }
}

TEST(Placement, EveryThreadIsBound) {
  const int processor = Placements().back().host;
  std::latch started(2), looked(1);
  pid_t thread = 0;
  std::thread other([&] {
    thread = gettid();
    started.arrive_and_wait();
    looked.wait();
  });
  started.arrive_and_wait();
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  EXPECT_TRUE(BindProcess(getpid(), {processor}));
  EXPECT_EQ(ProcessorOf(gettid()), processor);
  EXPECT_EQ(ProcessorOf(thread), processor);
  looked.count_down();
  other.join();
  sched_setaffinity(0, sizeof before, &before);
}

TEST(Placement, EveryChildIsBound) {
  const int processor = Placements().back().host;
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const pid_t grandchild = fork();
    if (grandchild > 0 && write(ends[1], &grandchild, sizeof grandchild) < 0) _exit(1);
    close(ends[1]);
    for (;;) pause();
  }
  close(ends[1]);
  pid_t grandchild = 0;
  ASSERT_EQ(read(ends[0], &grandchild, sizeof grandchild), ssize_t{sizeof grandchild});
  close(ends[0]);
  EXPECT_TRUE(BindTree(child, {processor}));
  EXPECT_EQ(ProcessorOf(child), processor);
  EXPECT_EQ(ProcessorOf(grandchild), processor);
  kill(grandchild, SIGKILL);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST(Placement, NobodyIsNotBound) { EXPECT_FALSE(BindTree(0x3FFFFFFF, {0})); }

}  // namespace
}  // namespace smolvm::bench
