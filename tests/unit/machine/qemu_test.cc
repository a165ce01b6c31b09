#include "machine/guest/qemu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace smolvm::machine {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string Line(const QemuOptions& options) {
  std::string line;
  for (const std::string& word : QemuCommand(options)) line += word + " ";
  return line;
}

QemuOptions Basic() {
  QemuOptions options;
  options.name = "box";
  options.kernel = "/k";
  options.initramfs = "/i";
  options.image_disk = "/a,b.erofs";
  options.vsock_socket = "/v.sock";
  options.console_log = "/c.log";
  options.memory_mib = 512;
  options.host.tsc_khz = 2000000;
  return options;
}

TEST(QemuTest, EmulatedWithOurVsock) {
  const std::string line = Line(Basic());
  EXPECT_THAT(line, HasSubstr("-accel tcg"));
  EXPECT_THAT(line, HasSubstr("tsc_early_khz=2000000 tsc=reliable"));
  EXPECT_THAT(line, HasSubstr("memory-backend-memfd,id=mem,size=512M,share=on"));
  EXPECT_THAT(line, HasSubstr("memory-backend=mem"));
  EXPECT_THAT(line, HasSubstr("vhost-user-vsock-device,chardev=vsock"));
  EXPECT_THAT(line, HasSubstr("reboot=t"));
  EXPECT_THAT(line, HasSubstr("-no-reboot"));
  EXPECT_THAT(line, HasSubstr("file=/a,,b.erofs,"));  // QEMU's escape of a comma
  EXPECT_THAT(line, HasSubstr("readonly=on"));
  EXPECT_THAT(line, Not(HasSubstr("-netdev")));
  EXPECT_THAT(line, Not(HasSubstr("changes")));
}

TEST(QemuTest, KvmWithTheKernelsVsock) {
  QemuOptions options = Basic();
  options.host.accelerator = Accelerator::kKvm;
  options.host.vsock = VsockKind::kKernel;
  options.cid = 77;
  options.net = true;
  options.changes_disk = "/d.ext4";
  const std::string line = Line(options);
  EXPECT_THAT(line, HasSubstr("-accel kvm"));
  EXPECT_THAT(line, Not(HasSubstr("tsc")));
  EXPECT_THAT(line, HasSubstr("vhost-vsock-device,guest-cid=77"));
  EXPECT_THAT(line, HasSubstr("-netdev user"));
  EXPECT_THAT(line,
              HasSubstr("serial=changes,werror=report"));  // a full host disk stops no machine
}

}  // namespace
}  // namespace smolvm::machine
