// What the tests of `smolvm machine` share: a state folder of their own, a tiny image, a launcher
// to run in front or in the background.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "machine/util/files.h"
#include "machine/util/tool.h"

namespace smolvm::machine {

class MachineVmTest : public ::testing::Test {
 protected:
  using Words = std::vector<std::string>;

  void SetUp() override;
  // Nothing of any machine may be left, whatever the test did.
  void TearDown() override;

  // `smolvm machine WORDS`, to its end.
  ToolResult Machine(const Words& words);
  // The same in the background, with its output in a file.
  pid_t StartMachine(const Words& words, const std::filesystem::path& output);
  // Waits up to two minutes for a text in a file.
  bool WaitForText(const std::filesystem::path& file, const std::string& text);
  static int Wait(pid_t pid);

  // A root file system of busybox alone.
  std::filesystem::path TinyImage();
  // The processes that work in a folder of this test's state.
  std::vector<pid_t> Helpers() const;
  static std::string NameOf(pid_t pid);
  bool WaitUntilGone() const;

  std::vector<std::pair<std::string, std::string>> Environment() const;

  const TempFolder folder_{std::filesystem::temp_directory_path() / "smolvm-machine-vm-test"};
  std::filesystem::path state_ = folder_.path() / "state";
  std::vector<std::pair<std::string, std::string>> more_environment_;
};

}  // namespace smolvm::machine
