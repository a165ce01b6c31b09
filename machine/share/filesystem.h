// The operations of a share. One object per share, one thread.
#pragma once

#include <dirent.h>
#include <linux/fuse.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "machine/share/inodes.h"

namespace smolvm::machine {

// What one request leads to. `error` is an errno; `data` is the body of a successful reply.
struct ShareReply {
  int error = 0;
  std::string data;
  bool none = false;  // a request that is not answered
};

class ShareFilesystem {
 public:
  explicit ShareFilesystem(bool read_only) : read_only_(read_only) {}
  bool OpenRoot(const std::string& path) { return inodes_.OpenRoot(path); }

  ShareReply Handle(const fuse_in_header& header, std::string_view body);

 private:
  struct CloseFolder {
    void operator()(DIR* folder) const { closedir(folder); }
  };
  struct OpenFile {
    UniqueFd fd;
    std::unique_ptr<DIR, CloseFolder> folder;
  };

  ShareReply Init(std::string_view body);
  ShareReply Lookup(uint64_t parent, const std::string& name);
  ShareReply GetAttr(uint64_t node);
  ShareReply SetAttr(const fuse_in_header& header, std::string_view body);
  ShareReply ReadLink(uint64_t node);
  ShareReply Make(const fuse_in_header& header, std::string_view body);  // MKNOD, MKDIR, SYMLINK
  ShareReply Remove(const fuse_in_header& header, std::string_view body);
  ShareReply Rename(const fuse_in_header& header, std::string_view body);
  ShareReply Link(const fuse_in_header& header, std::string_view body);
  ShareReply Open(const fuse_in_header& header, std::string_view body);
  ShareReply Create(const fuse_in_header& header, std::string_view body);
  ShareReply Read(std::string_view body);
  ShareReply Write(std::string_view body);
  ShareReply ReadFolder(std::string_view body);
  ShareReply Sync(std::string_view body);
  ShareReply Allocate(std::string_view body);
  ShareReply StatFs(uint64_t node);
  void Forget(const fuse_in_header& header, std::string_view body);

  // The entry of a file that was just made, given to the user who asked for it.
  ShareReply NewEntry(const fuse_in_header& header, const std::string& name);
  ShareReply NewHandle(UniqueFd fd, bool folder);
  OpenFile* Find(uint64_t handle);
  fuse_attr Attributes(const struct stat& status) const;
  bool Changes(const fuse_in_header& header, std::string_view body) const;

  const bool read_only_;
  // Of root, ids are the host's. Anybody else's own files are root's in the machine.
  const bool as_root_ = geteuid() == 0;
  InodeTable inodes_;
  std::unordered_map<uint64_t, OpenFile> handles_;
  uint64_t next_handle_ = 1;
};

}  // namespace smolvm::machine
