// One server for each share, whatever a guest does.
#include "machine/supervise/share_servers.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

namespace smolvm::machine {
namespace {

class ShareServersTest : public testing::Test {
 protected:
  // The guest's end; -1 when the server was not started.
  int Connect(ShareServers& servers, size_t index) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return -1;
    if (servers.Start(index, share_, UniqueFd(ends[1]))) return ends[0];
    close(ends[0]);
    return -1;
  }
  // How many children this process has, dead ones too.
  static size_t Children() {
    size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
      FILE* file = fopen((entry.path() / "children").c_str(), "r");
      int pid;
      while (file != nullptr && fscanf(file, "%d", &pid) == 1) ++count;
      if (file != nullptr) fclose(file);
    }
    return count;
  }

  const std::filesystem::path folder_ = std::filesystem::temp_directory_path();
  Share share_{.host = folder_};
};

TEST_F(ShareServersTest, ANewConnectionEndsTheOldServer) {
  ShareServers servers;
  const size_t before = Children();
  const int first = Connect(servers, 0);
  const int second = Connect(servers, 0);
  ASSERT_GE(second, 0);
  char byte;
  EXPECT_EQ(read(first, &byte, 1), 0);  // its server is gone
  EXPECT_EQ(servers.count(), 1u);
  EXPECT_EQ(Children(), before + 1);
  const int other = Connect(servers, 1);
  EXPECT_EQ(Children(), before + 2);
  for (const int fd : {first, second, other}) close(fd);
  servers.End();
  EXPECT_EQ(Children(), before);
}

// An attack made three hundred in three seconds, and noted every number it could get.
TEST_F(ShareServersTest, AGuestThatConnectsWithoutEndIsRefused) {
  ShareServers servers;
  const size_t before = Children();
  int served = 0;
  for (int k = 0; k < 300; ++k) {
    const int fd = Connect(servers, static_cast<size_t>(k) % 4);
    served += fd >= 0;
    if (fd >= 0) close(fd);
    EXPECT_LE(Children(), before + 4);
  }
  EXPECT_GE(served, 4);
  EXPECT_LE(served, 80);
  servers.End();
  EXPECT_EQ(Children(), before);
}

// The number of one that somebody has waited for may be another process's by now.
TEST_F(ShareServersTest, WhatWasCollectedIsNotSignalled) {
  ShareServers servers;
  const int fd = Connect(servers, 0);
  close(fd);
  const pid_t gone = waitpid(-1, nullptr, 0);
  ASSERT_GT(gone, 0);
  servers.WasCollected(gone);
  EXPECT_EQ(servers.count(), 0u);
  servers.End();
}

TEST_F(ShareServersTest, AServerThatDoesNotEndIsEnded) {
  ShareServers servers;
  const size_t before = Children();
  const int fd = Connect(servers, 0);  // kept open: the server waits for its guest
  servers.End();
  EXPECT_EQ(Children(), before);
  close(fd);
}

}  // namespace
}  // namespace smolvm::machine
