#include "machine/state/store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include <fstream>

#include "machine/launch/manage.h"
#include "machine/util/failure.h"
#include "machine/util/files.h"

namespace smolvm::machine {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class StoreTest : public ::testing::Test {
 protected:
  const TempFolder folder_{std::filesystem::temp_directory_path() / "smolvm-store-test"};
  MachineStore store_{folder_.path()};

  static MachineRecord Record(const std::string& name, bool ephemeral) {
    MachineRecord record;
    record.name = name;
    record.ephemeral = ephemeral;
    record.image = "debian";
    record.memory_mib = 256;
    record.shares = {{"/host", "/guest", true, false}};
    return record;
  }
};

TEST_F(StoreTest, ALockMeansRunning) {
  UniqueFd lock = store_.Create(Record("one", false));
  EXPECT_TRUE(store_.Get("one").running);
  EXPECT_FALSE(store_.Lock("one").valid());
  lock.reset();
  EXPECT_FALSE(store_.Get("one").running);
  EXPECT_TRUE(store_.Lock("one").valid());
  const MachineRecord record = store_.Get("one").record;
  EXPECT_EQ(record.memory_mib, 256u);
  ASSERT_EQ(record.shares.size(), 1u);
  EXPECT_TRUE(record.shares[0].read_only);
}

TEST_F(StoreTest, LookingIsInNobodysWay) {
  store_.Create(Record("one", false));
  // What another process's look does while it lasts.
  const UniqueFd look(open((store_.FolderOf("one") / "lock").c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(flock(look.get(), LOCK_SH | LOCK_NB), 0);
  EXPECT_FALSE(store_.Locked("one"));
  EXPECT_FALSE(store_.Get("one").running);
}

TEST_F(StoreTest, AMachineThatIsGoneIsNeitherLockedNorMadeAgain) {
  UniqueFd lock = store_.Create(Record("one", false));
  store_.Remove("one");
  EXPECT_FALSE(store_.Locked("one"));
  EXPECT_FALSE(store_.Lock("one").valid());
  EXPECT_FALSE(std::filesystem::exists(store_.FolderOf("one")));
  // Its name is free while the old one's lock is still held.
  const UniqueFd next = store_.Create(Record("one", false));
  lock.reset();
  EXPECT_TRUE(store_.Locked("one"));
}

TEST_F(StoreTest, WhatARemovalLeftIsReaped) {
  const std::filesystem::path left = store_.FolderOf(".gone-one-0123abcd");
  std::filesystem::create_directories(left / "deeper");
  store_.Reap();
  EXPECT_FALSE(std::filesystem::exists(left));
}

TEST_F(StoreTest, AnUnknownNameIsToldTheKnownOnes) {
  const auto why = [this] {
    try {
      store_.Get("nobody");
    } catch (const Failure& failure) {
      return std::string(failure.what());
    }
    return std::string("it was found");
  };
  EXPECT_EQ(why(), "there is no machine named 'nobody', nor any other");
  store_.Create(Record("two", false));
  store_.Create(Record("one", false));
  EXPECT_EQ(why(), "there is no machine named 'nobody'; there are: one, two");
}

TEST_F(StoreTest, NamesAreTakenOnce) {
  const UniqueFd lock = store_.Create(Record("one", true));
  EXPECT_THROW(store_.Create(Record("one", true)), Failure);
}

TEST_F(StoreTest, OnlyDeadEphemeralMachinesAreReaped) {
  const UniqueFd live = store_.Create(Record("live", true));
  store_.Create(Record("dead", true));
  store_.Create(Record("kept", false));
  store_.Reap();
  EXPECT_TRUE(store_.Find("live"));
  EXPECT_FALSE(store_.Find("dead"));
  EXPECT_TRUE(store_.Find("kept"));
  EXPECT_FALSE(std::filesystem::exists(store_.FolderOf("dead")));
}

TEST_F(StoreTest, Names) {
  EXPECT_TRUE(ValidMachineName("smolskill-gpu.1_x"));
  for (const char* bad : {"", ".", "..", "-x", "a/b", "a b", ".new-x", "\xc3\xa9"}) {
    EXPECT_FALSE(ValidMachineName(bad)) << bad;
  }
  EXPECT_FALSE(ValidMachineName(std::string(64, 'a')));
  EXPECT_TRUE(ValidMachineName(NewMachineName()));
  EXPECT_EQ(NewMachineName().size(), 11u);
  EXPECT_FALSE(store_.Find("../machines"));
}

TEST_F(StoreTest, ADamagedRecordIsNamed) {
  store_.Create(Record("bad", false));
  std::ofstream(store_.FolderOf("bad") / "machine.json") << "{\"name\": 3}";
  EXPECT_THROW(store_.Get("bad"), Failure);
}

TEST_F(StoreTest, List) {
  EXPECT_EQ(FormatList({}), "No machines found\n");
  const UniqueFd lock = store_.Create(Record("smolskill-a", true));
  const std::string text = FormatList(store_.List());
  EXPECT_THAT(text, StartsWith("NAME"));
  EXPECT_THAT(text, HasSubstr("\n----"));
  EXPECT_THAT(text, HasSubstr("\nsmolskill-a  running"));
  EXPECT_THAT(FormatListJson(store_.List()), HasSubstr("\"name\": \"smolskill-a\""));
  EXPECT_EQ(FormatListJson({}), "[]\n");
}

}  // namespace
}  // namespace smolvm::machine
