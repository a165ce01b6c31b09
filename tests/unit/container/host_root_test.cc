#include "container/host_root.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "container/pci_address.h"
#include "tests/unit/container/fixture.h"

namespace smolvm::gpu {
namespace {

TEST(HostRoot, ReadsListsAndLooks) {
  FixtureHost fixture;
  fixture.Write("/etc/b", "text");
  fixture.Write("/etc/a", "");
  fixture.Directory("/etc/c");
  fixture.Link("/etc/link", "../etc/b");
  const HostRoot root = fixture.host().root;
  EXPECT_EQ(root.Read("/etc/b").text, "text");
  EXPECT_TRUE(root.Read("/etc/a").ok());
  EXPECT_EQ(root.List("/etc"), (Words{"a", "b", "c", "link"}));
  EXPECT_EQ(root.Look("/etc/link"), HostRoot::Entry::kFile);
  EXPECT_EQ(root.Look("/etc/c"), HostRoot::Entry::kDirectory);
  EXPECT_EQ(root.LinkTarget("/etc/link"), "../etc/b");
  EXPECT_FALSE(root.LinkTarget("/etc/b").has_value());
  EXPECT_FALSE(root.LinkTarget("/etc/none").has_value());
  EXPECT_FALSE(root.List("/etc/none").has_value());
  EXPECT_FALSE(root.Exists("/etc/none"));
}

TEST(HostRoot, ReadFailuresSayWhy) {
  FixtureHost fixture;
  fixture.Write("/big", std::string(100, 'x'));
  fixture.Directory("/folder");
  ASSERT_EQ(mkfifo(fixture.Real("/fifo").c_str(), 0600), 0);
  const HostRoot root = fixture.host().root;
  EXPECT_EQ(root.Read("/big", 99).error, "larger than 99 bytes");
  EXPECT_TRUE(root.Read("/big", 100).ok());
  EXPECT_EQ(root.Read("/folder").error, "not a regular file");
  EXPECT_EQ(root.Read("/fifo").error, "not a regular file");  // and does not hang
  EXPECT_EQ(root.Read("/none").error, std::strerror(ENOENT));
}

TEST(HostRoot, LinksStayInsideTheRoot) {
  FixtureHost fixture;
  fixture.Write("/run/cdi/spec", "inside");
  fixture.Link("/var/run", "/run");  // as Debian has it: absolute
  fixture.Link("/passwd", "/etc/passwd");
  fixture.Link("/up", "../../../../../../etc/passwd");
  const HostRoot root = fixture.host().root;
  if (!root.Exists("/var/run/cdi/spec")) GTEST_SKIP() << "this kernel has no openat2";
  EXPECT_EQ(root.Read("/var/run/cdi/spec").text, "inside");
  EXPECT_FALSE(root.Exists("/passwd"));
  EXPECT_FALSE(root.Exists("/up"));
}

TEST(HostRoot, TellsASocket) {
  FixtureHost fixture;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string path = fixture.Real("/s");
  ASSERT_LT(path.size(), sizeof(address.sun_path));
  std::strcpy(address.sun_path, path.c_str());
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(fixture.host().root.Look("/s"), HostRoot::Entry::kSocket);
  close(fd);
}

TEST(HostRoot, TheSystemsRootIsTheDefault) {
  EXPECT_EQ(HostRoot().Look("/"), HostRoot::Entry::kDirectory);
  EXPECT_TRUE(HostRoot("/proc/").Exists("/self"));
}

TEST(PciAddress, OrdersByNumberAndPutsOthersLast) {
  EXPECT_TRUE(PciAddressLess("0000:09:00.0", "0000:0a:00.0"));
  EXPECT_TRUE(PciAddressLess("0000:ff:1f.7", "0001:00:00.0"));
  EXPECT_TRUE(PciAddressLess("2000:00:00.0", "10000:00:00.0"));  // by byte it would not be
  EXPECT_TRUE(PciAddressLess("0000:03:00.0", "0000:03:00.1"));
  EXPECT_TRUE(PciAddressLess("ffff:ff:1f.7", "renderD128"));
  EXPECT_TRUE(PciAddressLess("renderD128", "renderD129"));
  EXPECT_FALSE(PciAddressLess("0000:03:00.0", "0000:03:00.0"));
}

TEST(PciAddress, KnowsItsForm) {
  EXPECT_TRUE(IsPciAddress("0000:c1:00.0"));
  EXPECT_TRUE(IsPciAddress("10000:e1:00.0"));
  for (const char* text : {"", "0000:c1:00", "0000:c1:00.", "0000:c1:00.00", "00:c1:00.0",
                           "0000:g1:00.0", "0000:c1:00.0 ", "-000:c1:00.0", "000000000:c1:00.0"}) {
    EXPECT_FALSE(IsPciAddress(text)) << text;
  }
}

}  // namespace
}  // namespace smolvm::gpu
