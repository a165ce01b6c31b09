#include "machine/supervise/qmp.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "machine/supervise/message.h"
#include "machine/util/files.h"

namespace smolvm::machine {
namespace {

class QmpTest : public ::testing::Test {
 protected:
  void Accept() {
    watch_.Stopped();  // connects
    qemu_.reset(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    ASSERT_TRUE(qemu_.valid());
    Say("{\"QMP\": {\"version\": {}, \"capabilities\": []}}\r\n{\"return\": {}}\r\n");
  }
  void Say(const std::string& text) {
    ASSERT_EQ(send(qemu_.get(), text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  std::string Asked() {
    char buffer[4096];
    const ssize_t n = recv(qemu_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    return std::string(buffer, n > 0 ? n : 0);
  }

  const TempFolder folder_{std::filesystem::temp_directory_path() / "smolvm-qmp-test"};
  UniqueFd listener_ = ListenIn(folder_.path(), kQmpSocket, SOCK_STREAM);
  UniqueFd qemu_;
  QmpWatch watch_{folder_.path()};
};

TEST_F(QmpTest, AMachineThatRunsIsNotStopped) {
  Accept();
  EXPECT_NE(Asked().find("qmp_capabilities"), std::string::npos);
  EXPECT_EQ(watch_.Stopped(), "");
  for (const char* status : {"prelaunch", "running", "shutdown"}) {
    Say(std::string("{\"return\": {\"status\": \"") + status + "\", \"running\": true}}\r\n");
    EXPECT_EQ(watch_.Stopped(), "") << status;
  }
}

TEST_F(QmpTest, AStopIsAskedAboutAndSaid) {
  Accept();
  watch_.Stopped();
  Asked();
  Say("{\"timestamp\": {\"seconds\": 1}, \"event\": \"STOP\"}\r\n");
  EXPECT_EQ(watch_.Stopped(), "");
  EXPECT_NE(Asked().find("query-status"), std::string::npos);
  // In two parts, as a stream may bring it.
  Say("{\"return\": {\"status\": \"internal-");
  EXPECT_EQ(watch_.Stopped(), "");
  Say("error\", \"running\": false}}\r\n");
  EXPECT_EQ(watch_.Stopped(), "internal-error");
}

TEST_F(QmpTest, WhatIsNoQmpIsPassedOver) {
  Accept();
  Say("no json\n[1]\n{\"event\": 7}\n{\"return\": \"x\"}\n{\"return\": {\"status\": 5}}\n");
  EXPECT_EQ(watch_.Stopped(), "");
  qemu_.reset();
  EXPECT_EQ(watch_.Stopped(), "");
}

TEST(QmpWatchTest, WithoutAQemuNothingIsKnown) {
  const TempFolder folder(std::filesystem::temp_directory_path() / "smolvm-qmp-test");
  EXPECT_EQ(QmpWatch(folder.path()).Stopped(), "");
}

}  // namespace
}  // namespace smolvm::machine
