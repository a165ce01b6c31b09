#include "protocol/transport/endpoint.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <vector>

namespace smolvm::transport {
namespace {

class EndpointTest : public testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/smolvm-endpoint-XXXXXX";
    ASSERT_NE(mkdtemp(path), nullptr);
    folder_ = path;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  Endpoint At(const std::string& name) {
    return {.kind = Endpoint::Kind::kUnix, .path = folder_ + "/" + name};
  }
  std::string folder_;
  std::string error_;
};

TEST_F(EndpointTest, ParsesEachKind) {
  Endpoint endpoint;
  ASSERT_TRUE(ParseEndpoint("unix:/run/x.sock", &endpoint, &error_)) << error_;
  EXPECT_EQ(endpoint.kind, Endpoint::Kind::kUnix);
  EXPECT_EQ(endpoint.path, "/run/x.sock");
  ASSERT_TRUE(ParseEndpoint("vsock:3:7001", &endpoint, &error_)) << error_;
  EXPECT_EQ(endpoint.kind, Endpoint::Kind::kVsock);
  EXPECT_EQ(endpoint.cid, 3u);
  EXPECT_EQ(endpoint.port, 7001u);
  ASSERT_TRUE(ParseEndpoint("vsock:7002", &endpoint, &error_)) << error_;
  EXPECT_EQ(endpoint.cid, kHostCid);
  EXPECT_EQ(endpoint.port, 7002u);
  ASSERT_TRUE(ParseEndpoint("vhost-user:/run/v", &endpoint, &error_)) << error_;
  EXPECT_EQ(endpoint.kind, Endpoint::Kind::kVhostUser);
}

TEST_F(EndpointTest, PrintsWhatItParses) {
  for (const char* text : {"unix:/a:b", "vsock:2:7000", "vhost-user:/x", kDefaultEndpoint}) {
    Endpoint endpoint;
    ASSERT_TRUE(ParseEndpoint(text, &endpoint, &error_)) << error_;
    EXPECT_EQ(ToString(endpoint), text);
  }
}

TEST_F(EndpointTest, RefusesEverythingElseAndSaysWhatItTakes) {
  for (const char* text :
       {"", "unix", "unix:", "tcp:host:1", "vsock:", "vsock:x", "vsock:2:", "vsock:2:7000:1",
        "vsock::7000", "vsock:-1", "vsock:4294967296", "vsock:99999999999", "/run/x.sock"}) {
    Endpoint endpoint;
    error_.clear();
    EXPECT_FALSE(ParseEndpoint(text, &endpoint, &error_)) << text;
    EXPECT_NE(error_.find("unix:PATH"), std::string::npos) << text << ": " << error_;
  }
}

TEST_F(EndpointTest, ConnectsToAListener) {
  const int listener = Listen(At("s"), &error_);
  ASSERT_GE(listener, 0) << error_;
  const int client = Connect(At("s"), 1000, &error_);
  ASSERT_GE(client, 0) << error_;
  EXPECT_TRUE(fcntl(client, F_GETFD) & FD_CLOEXEC);
  EXPECT_FALSE(fcntl(client, F_GETFL) & O_NONBLOCK);
  const int server = accept(listener, nullptr, nullptr);
  ASSERT_GE(server, 0);
  ASSERT_EQ(send(client, "x", 1, 0), 1);
  char byte = 0;
  ASSERT_EQ(recv(server, &byte, 1, 0), 1);
  EXPECT_EQ(byte, 'x');
  close(server);
  close(client);
  close(listener);
}

TEST_F(EndpointTest, NobodyThereIsAnErrorAtOnce) {
  EXPECT_EQ(Connect(At("none"), 5000, &error_), -1);
  EXPECT_NE(error_.find("unix:" + folder_ + "/none"), std::string::npos) << error_;
}

TEST_F(EndpointTest, AFullQueueEndsAtTheTimeLimit) {
  const int listener = Listen(At("s"), &error_);
  ASSERT_GE(listener, 0) << error_;
  ASSERT_EQ(listen(listener, 0), 0);  // room for one that nobody accepts
  std::vector<int> clients;
  int client;
  while ((client = Connect(At("s"), 50, &error_)) >= 0 && clients.size() < 8) {
    clients.push_back(client);
  }
  EXPECT_EQ(client, -1);
  EXPECT_NE(error_.find("timed out"), std::string::npos) << error_;
  for (const int fd : clients) close(fd);
  close(listener);
}

TEST_F(EndpointTest, ABusySocketIsAnError) {
  const int listener = Listen(At("s"), &error_);
  ASSERT_GE(listener, 0) << error_;
  EXPECT_EQ(Listen(At("s"), &error_), -1);
  EXPECT_NE(error_.find("another process is listening"), std::string::npos) << error_;
  // The first one is not disturbed.
  const int client = Connect(At("s"), 1000, &error_);
  EXPECT_GE(client, 0) << error_;
  close(client);
  close(listener);
}

TEST_F(EndpointTest, AStaleSocketIsReplaced) {
  close(Listen(At("s"), &error_));
  const int again = Listen(At("s"), &error_);
  EXPECT_GE(again, 0) << error_;
  close(again);
}

TEST_F(EndpointTest, AFileOfThatNameIsKept) {
  std::ofstream(folder_ + "/file") << "precious";
  EXPECT_EQ(Listen(At("file"), &error_), -1);
  EXPECT_NE(error_.find("not a socket"), std::string::npos) << error_;
  EXPECT_EQ(std::filesystem::file_size(folder_ + "/file"), 8u);
}

TEST_F(EndpointTest, PathsThatCannotBe) {
  EXPECT_EQ(Listen(At(std::string(200, 'x')), &error_), -1);
  EXPECT_NE(error_.find("longer than 107"), std::string::npos) << error_;
  EXPECT_EQ(Connect(At(std::string(200, 'x')), 10, &error_), -1);
  EXPECT_EQ(Listen(At("no/such/folder"), &error_), -1);
  EXPECT_EQ(Connect({.kind = Endpoint::Kind::kVhostUser, .path = "/x"}, 10, &error_), -1);
}

TEST_F(EndpointTest, VsockOverTheLoopbackDevice) {
  const Endpoint endpoint{.kind = Endpoint::Kind::kVsock, .cid = 1, .port = 51234};
  const int listener = Listen(endpoint, &error_);
  if (listener < 0) GTEST_SKIP() << "no vsock on this machine: " << error_;
  const int client = Connect(endpoint, 1000, &error_);
  if (client < 0) {
    close(listener);
    GTEST_SKIP() << "no vsock loopback on this machine: " << error_;
  }
  const int server = accept(listener, nullptr, nullptr);
  ASSERT_GE(server, 0);
  ASSERT_EQ(send(client, "x", 1, 0), 1);
  char byte = 0;
  ASSERT_EQ(recv(server, &byte, 1, 0), 1);
  close(server);
  close(client);
  close(listener);
}

}  // namespace
}  // namespace smolvm::transport
