// Which grid the cores' threads help first.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <string>
#include <thread>

#include "host-daemon/emulation/runtime/pool.h"

namespace smolvm::emulation {
namespace {

using Outcome = WorkPool::Outcome;

// Until somebody sets it; the threads here wait for nothing else.
void Await(const std::atomic<bool>& flag) { flag.wait(false); }
void Set(std::atomic<bool>* flag) {
  *flag = true;
  flag->notify_all();
}
void AwaitCount(const std::atomic<size_t>& count, size_t least) {
  while (count.load() < least) std::this_thread::yield();
}

TEST(Priority, TheHigherGridIsHelpedFirst) {
  WorkPool& pool = WorkPool::Get();
  std::atomic<bool> released{false}, low_waits{false}, high_waits{false};
  std::atomic<size_t> occupied{0};
  std::thread blocker([&] {
    pool.Run(
        [&](bool is_helper) {
          if (is_helper) ++occupied;
          Await(released);
          return Outcome::kDone;
        },
        pool.size(), 0);
  });
  AwaitCount(occupied, pool.size());
  std::mutex mutex;
  std::string order;
  std::atomic<size_t> helped{0};
  const auto run = [&](char name, int priority, std::atomic<bool>* waits) {
    pool.Run(
        [&, name, waits](bool is_helper) {
          if (is_helper) {
            const std::lock_guard lock(mutex);
            order += name;
            ++helped;
            return Outcome::kDone;
          }
          Set(waits);
          AwaitCount(helped, 2 * pool.size());
          return Outcome::kDone;
        },
        pool.size(), priority);
  };
  std::thread low([&] { run('l', 0, &low_waits); });
  Await(low_waits);
  std::thread high([&] { run('h', -1, &high_waits); });
  Await(high_waits);
  Set(&released);
  for (std::thread* thread : {&blocker, &low, &high}) thread->join();
  EXPECT_EQ(order, std::string(pool.size(), 'h') + std::string(pool.size(), 'l'));
}

TEST(Priority, HelpersLeaveForAHigherGridAndComeBack) {
  WorkPool& pool = WorkPool::Get();
  std::atomic<size_t> came{0}, high_helped{0};
  std::atomic<bool> stop{false};
  std::thread low([&] {
    pool.Run(
        [&](bool is_helper) {
          if (!is_helper) {
            // Every helper came twice: before the higher grid and after it.
            AwaitCount(came, 2 * pool.size());
            stop = true;
            return Outcome::kDone;
          }
          ++came;
          while (!stop && !pool.Outranked(0)) std::this_thread::yield();
          return stop ? Outcome::kDone : Outcome::kLeft;
        },
        pool.size(), 0);
  });
  AwaitCount(came, pool.size());
  EXPECT_FALSE(pool.Outranked(0));
  pool.Run(
      [&](bool is_helper) {
        // Each waits for the others, so that none does the work of two.
        if (is_helper) ++high_helped;
        AwaitCount(high_helped, pool.size());
        return Outcome::kDone;
      },
      pool.size(), -5);
  low.join();
  EXPECT_EQ(high_helped, pool.size());
  EXPECT_FALSE(pool.Outranked(0));
}

// An equal does not drive anybody away.
TEST(Priority, EqualsAreServedInTurn) {
  WorkPool& pool = WorkPool::Get();
  std::atomic<bool> looked{false};
  pool.Run(
      [&](bool is_helper) {
        if (is_helper) return Outcome::kDone;
        EXPECT_FALSE(pool.Outranked(-3));
        std::thread([&] {
          pool.Run(
              [&](bool helps) {
                if (!helps) EXPECT_FALSE(pool.Outranked(-3));
                return Outcome::kDone;
              },
              pool.size(), -3);
        }).join();
        looked = true;
        return Outcome::kDone;
      },
      1, -3);
  EXPECT_TRUE(looked);
}

}  // namespace
}  // namespace smolvm::emulation
