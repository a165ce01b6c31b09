#include "machine/supervise/cuda_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

#include "machine/launch/manage.h"
#include "machine/util/files.h"

namespace smolvm::machine {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CudaWatchTest : public ::testing::Test {
 protected:
  void Advance(std::chrono::milliseconds by) { watch_.Advance(now_ += by); }
  void Die() { watch_.OnDeath("the CUDA daemon was ended by signal 9", now_); }

  CudaWatch::Clock::time_point now_{1h};
  int starts_ = 0;
  bool serves_ = false, can_start_ = true;
  std::vector<std::string> said_, published_;
  CudaWatch watch_{
      {[this] {
         ++starts_;
         if (!can_start_) throw std::runtime_error("it is missing");
       },
       [this] { return serves_; }, [this](const std::string& line) { said_.push_back(line); },
       [this](const char* word) { published_.push_back(word); }},
      now_};
};

TEST_F(CudaWatchTest, StartsADeadDaemonAgainAndSaysSo) {
  EXPECT_FALSE(watch_.busy());
  Die();
  EXPECT_TRUE(watch_.busy());
  EXPECT_THAT(published_, ElementsAre("restarting"));
  EXPECT_THAT(said_, ElementsAre(HasSubstr("ended by signal 9; ")));
  Advance(99ms);
  EXPECT_EQ(starts_, 0);
  Advance(1ms);
  Advance(1ms);
  EXPECT_EQ(starts_, 1);
  EXPECT_THAT(published_, ElementsAre("restarting"));
  serves_ = true;
  Advance(1ms);
  EXPECT_FALSE(watch_.busy());
  EXPECT_THAT(published_, ElementsAre("restarting", ""));
  EXPECT_EQ(said_.back(), "the CUDA daemon serves again");
}

TEST_F(CudaWatchTest, GivesUpAfterARowOfDeaths) {
  std::chrono::milliseconds pause = 100ms;
  for (int i = 1; i <= CudaWatch::kMostRestarts; ++i, pause *= 3) {
    Die();
    Advance(pause - 1ms);
    EXPECT_EQ(starts_, i - 1);
    Advance(1ms);
    EXPECT_EQ(starts_, i);
  }
  Die();
  EXPECT_FALSE(watch_.busy());
  EXPECT_EQ(published_.back(), "failed");
  EXPECT_THAT(said_.back(), HasSubstr("after 5 restarts in a row"));
  Advance(10min);
  EXPECT_EQ(starts_, CudaWatch::kMostRestarts);
}

TEST_F(CudaWatchTest, ALongServiceEndsTheRow) {
  serves_ = true;
  for (int i = 1; i <= 3 * CudaWatch::kMostRestarts; ++i) {
    Die();
    Advance(100ms);
    EXPECT_EQ(starts_, i);
    now_ += CudaWatch::kHealthy;
  }
}

TEST_F(CudaWatchTest, ADaemonThatCannotBeStartedCountsAsDead) {
  can_start_ = false;
  Die();
  Advance(100ms);
  EXPECT_EQ(starts_, 1);
  EXPECT_THAT(said_.back(), HasSubstr("cannot be started: it is missing; "));
  can_start_ = serves_ = true;
  Advance(300ms);
  EXPECT_EQ(starts_, 2);
  EXPECT_EQ(published_.back(), "");
}

TEST(CudaStateTest, TheListShowsIt) {
  const TempFolder folder(std::filesystem::temp_directory_path() / "smolvm-cuda-watch-test");
  MachineEntry entry{.folder = folder.path(), .running = true};
  entry.record.name = "box";
  EXPECT_THAT(FormatListJson({entry}), HasSubstr("\"cuda_state\": \"no\""));
  entry.record.cuda = true;
  EXPECT_THAT(FormatListJson({entry}), HasSubstr("\"cuda_state\": \"yes\""));
  WriteFileAtomically(folder.path() / kCudaStateFile, "failed");
  EXPECT_THAT(FormatListJson({entry}), HasSubstr("\"cuda_state\": \"failed\""));
  EXPECT_THAT(FormatList({entry}), HasSubstr("failed"));
  // Anything else that lies there is not shown.
  WriteFileAtomically(folder.path() / kCudaStateFile, "\x1b[2J");
  EXPECT_THAT(FormatListJson({entry}), HasSubstr("\"cuda_state\": \"yes\""));
  WriteFileAtomically(folder.path() / kCudaStateFile, "failed");
  entry.running = false;
  EXPECT_THAT(FormatListJson({entry}), HasSubstr("\"cuda_state\": \"yes\""));
}

}  // namespace
}  // namespace smolvm::machine
