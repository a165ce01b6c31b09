// Drives the share's server with FUSE messages, as the guest's kernel (or a hostile guest) would.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cstring>
#include <fstream>

#include "machine/share/filesystem.h"
#include "machine/share/limits.h"
#include "machine/share/server.h"
#include "machine/util/files.h"

namespace smolvm::machine {
namespace {

namespace fs = std::filesystem;

template <typename T>
std::string Bytes(const T& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

class ShareTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(root_ / "dir");
    std::ofstream(root_ / "file") << "content";
    std::ofstream(folder_.path() / "secret") << "secret";
    fs::create_symlink("..", root_ / "up");
    ASSERT_TRUE(rw_.OpenRoot(root_));
    ASSERT_TRUE(ro_.OpenRoot(root_));
  }

  ShareReply Call(ShareFilesystem& share, uint32_t opcode, uint64_t node, const std::string& body) {
    fuse_in_header header{};
    header.opcode = opcode;
    header.nodeid = node;
    header.uid = getuid();
    header.gid = getgid();
    return share.Handle(header, body);
  }
  std::string Name(const std::string& name) { return name + std::string(1, '\0'); }
  // The node, or 0.
  uint64_t Find(ShareFilesystem& share, uint64_t parent, const std::string& name) {
    const ShareReply reply = Call(share, FUSE_LOOKUP, parent, Name(name));
    fuse_entry_out out{};
    if (reply.error != 0) return 0;
    std::memcpy(&out, reply.data.data(), sizeof out);
    return out.nodeid;
  }
  uint64_t Open(ShareFilesystem& share, uint64_t node, uint32_t flags,
                uint32_t opcode = FUSE_OPEN) {
    fuse_open_in in{};
    in.flags = flags;
    const ShareReply reply = Call(share, opcode, node, Bytes(in));
    fuse_open_out out{};
    if (reply.error != 0) return 0;
    std::memcpy(&out, reply.data.data(), sizeof out);
    return out.fh;
  }
  std::string ReadAll(ShareFilesystem& share, uint64_t node) {
    fuse_read_in in{};
    in.fh = Open(share, node, O_RDONLY);
    in.size = 4096;
    return Call(share, FUSE_READ, node, Bytes(in)).data;
  }

  const TempFolder folder_{fs::temp_directory_path() / "smolvm-share-test"};
  const fs::path root_ = folder_.path() / "root";
  ShareFilesystem rw_{false}, ro_{true};
};

TEST_F(ShareTest, ReadsWritesAndMakes) {
  EXPECT_EQ(ReadAll(rw_, Find(rw_, 1, "file")), "content");
  fuse_create_in create{};
  create.flags = O_RDWR | O_CREAT;
  create.mode = S_IFREG | 0644;
  const ShareReply made = Call(rw_, FUSE_CREATE, Find(rw_, 1, "dir"), Bytes(create) + Name("new"));
  ASSERT_EQ(made.error, 0);
  fuse_open_out open{};
  std::memcpy(&open, made.data.data() + sizeof(fuse_entry_out), sizeof open);
  fuse_write_in write{};
  write.fh = open.fh;
  write.size = 5;
  EXPECT_EQ(Call(rw_, FUSE_WRITE, 0, Bytes(write) + "hello").error, 0);
  EXPECT_EQ(ReadFile(root_ / "dir/new"), "hello");
  fuse_rename2_in rename{};
  rename.newdir = 1;
  EXPECT_EQ(
      Call(rw_, FUSE_RENAME2, Find(rw_, 1, "dir"), Bytes(rename) + Name("new") + Name("moved"))
          .error,
      0);
  EXPECT_EQ(ReadFile(root_ / "moved"), "hello");
  EXPECT_EQ(Call(rw_, FUSE_UNLINK, 1, Name("moved")).error, 0);
  EXPECT_EQ(Call(rw_, FUSE_RMDIR, 1, Name("dir")).error, 0);
  EXPECT_FALSE(fs::exists(root_ / "moved"));
}

TEST_F(ShareTest, ListsFolders) {
  fuse_read_in in{};
  in.fh = Open(rw_, 1, O_RDONLY, FUSE_OPENDIR);
  in.size = 4096;
  const std::string list = Call(rw_, FUSE_READDIR, 1, Bytes(in)).data;
  for (const char* name : {"file", "dir", "up"}) EXPECT_NE(list.find(name), std::string::npos);
  in.size = 32;  // room for one entry only
  EXPECT_LE(Call(rw_, FUSE_READDIR, 1, Bytes(in)).data.size(), 32u);
}

TEST_F(ShareTest, NothingLeadsOut) {
  for (const char* name : {"..", ".", "", "../secret", "dir/../../secret", "/etc/passwd"}) {
    EXPECT_EQ(Find(rw_, 1, name), 0u) << name;
    EXPECT_NE(Call(rw_, FUSE_UNLINK, 1, Name(name)).error, 0) << name;
    EXPECT_NE(Call(rw_, FUSE_MKDIR, 1, Bytes(fuse_mkdir_in{0755, 0}) + Name(name)).error, 0);
  }
  // A link is a link, never what it points to.
  const uint64_t up = Find(rw_, 1, "up");
  ASSERT_NE(up, 0u);
  EXPECT_EQ(Find(rw_, up, "secret"), 0u);
  EXPECT_EQ(Open(rw_, up, O_RDONLY), 0u);
  EXPECT_EQ(Call(rw_, FUSE_READLINK, up, "").data, "..");
  EXPECT_TRUE(fs::exists(folder_.path() / "secret"));
}

TEST_F(ShareTest, NoDevicesAndNoSetuidPrograms) {
  fuse_mknod_in node{};
  node.mode = S_IFCHR | 0666;
  node.rdev = 0x103;
  EXPECT_EQ(Call(rw_, FUSE_MKNOD, 1, Bytes(node) + Name("null")).error, EPERM);
  fuse_setattr_in attr{};
  attr.valid = FATTR_MODE;
  attr.mode = S_IFREG | 06755;
  EXPECT_EQ(Call(rw_, FUSE_SETATTR, Find(rw_, 1, "file"), Bytes(attr)).error, 0);
  struct stat status;
  ASSERT_EQ(stat((root_ / "file").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0755u);
  // Opening a pipe of the host would wait for ever.
  ASSERT_EQ(mkfifo((root_ / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(Open(rw_, Find(rw_, 1, "pipe"), O_RDONLY), 0u);
}

TEST_F(ShareTest, ReadOnlyRefusesEveryChange) {
  const uint64_t file = Find(ro_, 1, "file");
  EXPECT_EQ(ReadAll(ro_, file), "content");
  EXPECT_EQ(Open(ro_, file, O_WRONLY), 0u);
  EXPECT_EQ(Open(ro_, file, O_RDONLY | O_TRUNC), 0u);
  for (const uint32_t opcode :
       {FUSE_SETATTR, FUSE_MKNOD, FUSE_MKDIR, FUSE_SYMLINK, FUSE_UNLINK, FUSE_RMDIR, FUSE_RENAME,
        FUSE_RENAME2, FUSE_LINK, FUSE_CREATE, FUSE_WRITE, FUSE_FALLOCATE}) {
    EXPECT_EQ(Call(ro_, opcode, file, "").error, EROFS) << opcode;
  }
  EXPECT_EQ(ReadFile(root_ / "file"), "content");
}

TEST_F(ShareTest, ShortAndWildMessagesAreRefused) {
  for (uint32_t opcode = 0; opcode < 64; ++opcode) {
    for (size_t size = 0; size < 64; ++size) {
      for (const uint64_t node : {uint64_t{1}, uint64_t{999}, ~uint64_t{0}}) {
        const ShareReply reply = Call(rw_, opcode, node, std::string(size, '\xff'));
        EXPECT_TRUE(reply.none || reply.error >= 0);
      }
    }
  }
  EXPECT_EQ(ReadFile(root_ / "file"), "content");
}

TEST_F(ShareTest, ForgottenNodesAreGone) {
  const uint64_t file = Find(rw_, 1, "file");
  EXPECT_EQ(Find(rw_, 1, "file"), file);
  fuse_forget_in forget{1};
  EXPECT_TRUE(Call(rw_, FUSE_FORGET, file, Bytes(forget)).none);
  EXPECT_EQ(Call(rw_, FUSE_GETATTR, file, "").error, 0);
  Call(rw_, FUSE_FORGET, file, Bytes(forget));
  EXPECT_EQ(Call(rw_, FUSE_GETATTR, file, "").error, ESTALE);
}

TEST_F(ShareTest, TheServerEndsWithTheStreamAndOnABadLength) {
  for (const uint32_t length : {uint32_t{4}, uint32_t{kMaxShareMessage + 1}, ~uint32_t{0}}) {
    int fds[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    const pid_t child = fork();
    if (child == 0) {
      close(fds[0]);
      _exit(ServeShare(fds[1], root_, false));
    }
    close(fds[1]);
    fuse_in_header header{};
    header.len = length;
    ASSERT_EQ(write(fds[0], &header, sizeof header), ssize_t(sizeof header));
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(WEXITSTATUS(status), 1);
    close(fds[0]);
  }
}

TEST_F(ShareTest, RenamesLeaveNoDevice) {
  for (const uint32_t flags :
       {uint32_t{RENAME_WHITEOUT}, uint32_t{RENAME_WHITEOUT | RENAME_NOREPLACE}, 1u << 3, ~0u}) {
    fuse_rename2_in rename{};
    rename.newdir = 1;
    rename.flags = flags;
    EXPECT_EQ(Call(rw_, FUSE_RENAME2, 1, Bytes(rename) + Name("file") + Name("moved")).error,
              EINVAL)
        << flags;
    EXPECT_TRUE(fs::is_regular_file(root_ / "file"));
  }
}

// The server in a process of its own, as it is in a machine.
class ServedShareTest : public ShareTest {
 protected:
  void SetUp() override {
    ShareTest::SetUp();
    int fds[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    child_ = fork();
    if (child_ == 0) {
      close(fds[0]);
      _exit(ServeShare(fds[1], root_, false));
    }
    close(fds[1]);
    stream_ = fds[0];
  }
  void TearDown() override {
    close(stream_);
    waitpid(child_, nullptr, 0);
  }
  // The reply's body; its error in *error.
  std::string Ask(uint32_t opcode, uint64_t node, const std::string& body, int* error) {
    fuse_in_header header{};
    header.len = static_cast<uint32_t>(sizeof header + body.size());
    header.opcode = opcode;
    header.nodeid = node;
    header.unique = 1;
    const std::string message = Bytes(header) + body;
    EXPECT_EQ(send(stream_, message.data(), message.size(), 0),
              static_cast<ssize_t>(message.size()));
    fuse_out_header out{};
    EXPECT_EQ(recv(stream_, &out, sizeof out, MSG_WAITALL), static_cast<ssize_t>(sizeof out));
    std::string data(out.len - sizeof out, '\0');
    if (!data.empty()) recv(stream_, data.data(), data.size(), MSG_WAITALL);
    *error = -out.error;
    return data;
  }
  template <typename T>
  T As(const std::string& data) {
    T out{};
    std::memcpy(&out, data.data(), std::min(data.size(), sizeof out));
    return out;
  }

  pid_t child_ = -1;
  int stream_ = -1;
};

// As root a guest's write once left a host file 4755.
TEST_F(ServedShareTest, SetIdBitsFallWithEachWayToWrite) {
  const fs::path file = root_ / "file";
  int error = 0;
  const uint64_t node = As<fuse_entry_out>(Ask(FUSE_LOOKUP, 1, Name("file"), &error)).nodeid;
  ASSERT_EQ(error, 0);
  fuse_open_in how{};
  how.flags = O_RDWR;
  const uint64_t handle = As<fuse_open_out>(Ask(FUSE_OPEN, node, Bytes(how), &error)).fh;
  ASSERT_EQ(error, 0);
  const auto mode = [&] {
    struct stat status {};
    stat(file.c_str(), &status);
    return status.st_mode & 07777;
  };
  const auto expect_fallen = [&](const char* by) {
    EXPECT_EQ(error, 0) << by;
    EXPECT_EQ(mode(), 0755u) << by;
    ASSERT_EQ(chmod(file.c_str(), 06755), 0);
  };
  ASSERT_EQ(chmod(file.c_str(), 06755), 0);
  fuse_write_in write{};
  write.fh = handle;
  write.size = 4;
  Ask(FUSE_WRITE, node, Bytes(write) + "evil", &error);
  expect_fallen("write");
  fuse_setattr_in attributes{};
  attributes.valid = FATTR_SIZE;
  attributes.size = 2;
  Ask(FUSE_SETATTR, node, Bytes(attributes), &error);
  expect_fallen("truncation");
  fuse_fallocate_in more{};
  more.fh = handle;
  more.length = 4096;
  Ask(FUSE_FALLOCATE, node, Bytes(more), &error);
  expect_fallen("fallocate");
  how.flags = O_WRONLY | O_TRUNC;
  Ask(FUSE_OPEN, node, Bytes(how), &error);
  if (error == 0 && fs::file_size(file) == 0) expect_fallen("an open that truncates");
}

}  // namespace
}  // namespace smolvm::machine
