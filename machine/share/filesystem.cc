#include "machine/share/filesystem.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "machine/share/limits.h"

namespace smolvm::machine {
namespace {

constexpr size_t kMaxHandles = 65536;
// How long the guest may trust what it knows of a file that the host may change.
constexpr uint64_t kValidSeconds = 1;
constexpr uint32_t kNobody = 65534;
// What a guest may ask of open(2); everything else is dropped.
constexpr int kOpenFlags = O_ACCMODE | O_APPEND | O_TRUNC | O_SYNC | O_DSYNC;

ShareReply Error(int error) { return {error, {}, false}; }
ShareReply Result(int status) { return status < 0 ? Error(errno) : ShareReply{}; }

template <typename T>
std::string Bytes(const T& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

// Takes a fixed structure from the front of a body; false when it is too short.
template <typename T>
bool Take(std::string_view* body, T* value) {
  if (body->size() < sizeof *value) return false;
  std::memcpy(value, body->data(), sizeof *value);
  body->remove_prefix(sizeof *value);
  return true;
}

// Takes a zero-terminated string; what has no end is taken whole.
std::string TakeName(std::string_view* body) {
  const size_t end = body->find('\0');
  std::string name(body->substr(0, end));
  body->remove_prefix(end == std::string_view::npos ? body->size() : end + 1);
  return name;
}

// A guest must not leave programs on the host that run as somebody else.
mode_t SafeMode(mode_t mode, bool folder) { return mode & (folder ? 03777 : 01777); }

}  // namespace

ShareReply ShareFilesystem::Handle(const fuse_in_header& header, std::string_view body) {
  if (read_only_ && Changes(header, body)) return Error(EROFS);
  switch (header.opcode) {
    case FUSE_INIT:
      return Init(body);
    case FUSE_LOOKUP:
      return Lookup(header.nodeid, TakeName(&body));
    case FUSE_GETATTR:
      return GetAttr(header.nodeid);
    case FUSE_SETATTR:
      return SetAttr(header, body);
    case FUSE_READLINK:
      return ReadLink(header.nodeid);
    case FUSE_MKNOD:
    case FUSE_MKDIR:
    case FUSE_SYMLINK:
      return Make(header, body);
    case FUSE_UNLINK:
    case FUSE_RMDIR:
      return Remove(header, body);
    case FUSE_RENAME:
    case FUSE_RENAME2:
      return Rename(header, body);
    case FUSE_LINK:
      return Link(header, body);
    case FUSE_OPEN:
    case FUSE_OPENDIR:
      return Open(header, body);
    case FUSE_CREATE:
      return Create(header, body);
    case FUSE_READ:
      return Read(body);
    case FUSE_WRITE:
      return Write(body);
    case FUSE_READDIR:
      return ReadFolder(body);
    case FUSE_FSYNC:
    case FUSE_FSYNCDIR:
      return Sync(body);
    case FUSE_FALLOCATE:
      return Allocate(body);
    case FUSE_STATFS:
      return StatFs(header.nodeid);
    case FUSE_FLUSH:
    case FUSE_DESTROY:
      return {};
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR: {
      fuse_release_in in;
      if (Take(&body, &in)) handles_.erase(in.fh);
      return {};
    }
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
      Forget(header, body);
      return {0, {}, true};
    case FUSE_INTERRUPT:
      return {0, {}, true};  // nothing here waits
    default:
      return Error(ENOSYS);  // the kernel then does without
  }
}

bool ShareFilesystem::Changes(const fuse_in_header& header, std::string_view body) const {
  switch (header.opcode) {
    case FUSE_SETATTR:
    case FUSE_MKNOD:
    case FUSE_MKDIR:
    case FUSE_SYMLINK:
    case FUSE_UNLINK:
    case FUSE_RMDIR:
    case FUSE_RENAME:
    case FUSE_RENAME2:
    case FUSE_LINK:
    case FUSE_CREATE:
    case FUSE_WRITE:
    case FUSE_FALLOCATE:
      return true;
    case FUSE_OPEN: {
      fuse_open_in in;
      return Take(&body, &in) && ((in.flags & O_ACCMODE) != O_RDONLY || (in.flags & O_TRUNC) != 0);
    }
    default:
      return false;
  }
}

ShareReply ShareFilesystem::Init(std::string_view body) {
  // Older kernels send a shorter structure; version and flags come first.
  fuse_init_in in{};
  std::memcpy(&in, body.data(), std::min(body.size(), sizeof in));
  if (body.size() < 16 || in.major != FUSE_KERNEL_VERSION) return Error(EPROTO);
  fuse_init_out out{};
  out.major = FUSE_KERNEL_VERSION;
  out.minor = std::min<uint32_t>(in.minor, FUSE_KERNEL_MINOR_VERSION);
  out.max_readahead = in.max_readahead;
  out.flags = in.flags & (FUSE_ASYNC_READ | FUSE_BIG_WRITES | FUSE_MAX_PAGES |
                          FUSE_PARALLEL_DIROPS | FUSE_HANDLE_KILLPRIV);
  out.max_background = 16;
  out.congestion_threshold = 12;
  out.max_write = kMaxShareData;
  out.max_pages = kMaxShareData / 4096;
  out.time_gran = 1;
  return {0, Bytes(out)};
}

fuse_attr ShareFilesystem::Attributes(const struct stat& status) const {
  fuse_attr attr{};
  attr.ino = status.st_ino;
  attr.size = status.st_size;
  attr.blocks = status.st_blocks;
  attr.atime = status.st_atim.tv_sec;
  attr.mtime = status.st_mtim.tv_sec;
  attr.ctime = status.st_ctim.tv_sec;
  attr.atimensec = status.st_atim.tv_nsec;
  attr.mtimensec = status.st_mtim.tv_nsec;
  attr.ctimensec = status.st_ctim.tv_nsec;
  attr.mode = status.st_mode;
  attr.nlink = status.st_nlink;
  attr.uid = as_root_ ? status.st_uid : status.st_uid == geteuid() ? 0 : kNobody;
  attr.gid = as_root_ ? status.st_gid : status.st_gid == getegid() ? 0 : kNobody;
  attr.blksize = status.st_blksize;
  return attr;
}

ShareReply ShareFilesystem::Lookup(uint64_t parent, const std::string& name) {
  fuse_entry_out out{};
  struct stat status;
  if (const int error = inodes_.Lookup(parent, name, &out.nodeid, &status)) return Error(error);
  out.entry_valid = kValidSeconds;
  out.attr_valid = kValidSeconds;
  out.attr = Attributes(status);
  return {0, Bytes(out)};
}

ShareReply ShareFilesystem::GetAttr(uint64_t node) {
  struct stat status;
  if (inodes_.Fd(node) < 0) return Error(ESTALE);
  if (fstat(inodes_.Fd(node), &status) != 0) return Error(errno);
  fuse_attr_out out{};
  out.attr_valid = kValidSeconds;
  out.attr = Attributes(status);
  return {0, Bytes(out)};
}

ShareReply ShareFilesystem::SetAttr(const fuse_in_header& header, std::string_view body) {
  fuse_setattr_in in;
  if (!Take(&body, &in)) return Error(EINVAL);
  const int fd = inodes_.Fd(header.nodeid);
  struct stat status;
  if (fd < 0 || fstat(fd, &status) != 0) return Error(ESTALE);
  const std::string path = inodes_.ProcPath(header.nodeid);
  if (in.valid & FATTR_SIZE) {
    const UniqueFd file(inodes_.Reopen(header.nodeid, O_WRONLY));
    if (!file.valid() || ftruncate(file.get(), in.size) != 0) return Error(errno);
  }
  if (in.valid & (FATTR_UID | FATTR_GID)) {
    const uid_t uid = in.valid & FATTR_UID ? in.uid : -1;
    const gid_t gid = in.valid & FATTR_GID ? in.gid : -1;
    // An ordinary user's files look like root's, so giving them to root changes nothing.
    const bool nothing =
        !as_root_ && (uid == 0 || uid == uid_t(-1)) && (gid == 0 || gid == gid_t(-1));
    if (!nothing && fchownat(fd, "", uid, gid, AT_EMPTY_PATH) != 0) return Error(errno);
  }
  if (in.valid & FATTR_MODE) {
    if (S_ISLNK(status.st_mode)) return Error(EOPNOTSUPP);
    if (chmod(path.c_str(), SafeMode(in.mode, S_ISDIR(status.st_mode))) != 0) return Error(errno);
  }
  if (in.valid & (FATTR_ATIME | FATTR_MTIME)) {
    timespec times[2] = {{static_cast<time_t>(in.atime), static_cast<long>(in.atimensec)},
                         {static_cast<time_t>(in.mtime), static_cast<long>(in.mtimensec)}};
    if (!(in.valid & FATTR_ATIME)) times[0].tv_nsec = UTIME_OMIT;
    if (!(in.valid & FATTR_MTIME)) times[1].tv_nsec = UTIME_OMIT;
    if (in.valid & FATTR_ATIME_NOW) times[0].tv_nsec = UTIME_NOW;
    if (in.valid & FATTR_MTIME_NOW) times[1].tv_nsec = UTIME_NOW;
    if (!S_ISLNK(status.st_mode) && utimensat(AT_FDCWD, path.c_str(), times, 0) != 0) {
      return Error(errno);
    }
  }
  return GetAttr(header.nodeid);
}

ShareReply ShareFilesystem::ReadLink(uint64_t node) {
  char text[PATH_MAX];
  const ssize_t n = readlinkat(inodes_.Fd(node), "", text, sizeof text);
  if (n < 0) return Error(errno);
  return {0, std::string(text, n)};
}

ShareReply ShareFilesystem::NewEntry(const fuse_in_header& header, const std::string& name) {
  if (as_root_) {
    fchownat(inodes_.Fd(header.nodeid), name.c_str(), header.uid, header.gid, AT_SYMLINK_NOFOLLOW);
  }
  return Lookup(header.nodeid, name);
}

ShareReply ShareFilesystem::Make(const fuse_in_header& header, std::string_view body) {
  const int folder = inodes_.Fd(header.nodeid);
  fuse_mknod_in node{};
  fuse_mkdir_in dir{};
  if (header.opcode == FUSE_MKNOD && !Take(&body, &node)) return Error(EINVAL);
  if (header.opcode == FUSE_MKDIR && !Take(&body, &dir)) return Error(EINVAL);
  const std::string name = TakeName(&body);
  if (!IsPlainName(name)) return Error(EINVAL);
  int status = -1;
  if (header.opcode == FUSE_MKDIR) {
    status = mkdirat(folder, name.c_str(), SafeMode(dir.mode, true));
  } else if (header.opcode == FUSE_SYMLINK) {
    status = symlinkat(TakeName(&body).c_str(), folder, name.c_str());
  } else {
    const mode_t type = node.mode & S_IFMT;
    if (type != S_IFREG && type != S_IFIFO && type != S_IFSOCK) return Error(EPERM);
    status = mknodat(folder, name.c_str(), type | SafeMode(node.mode, false), 0);
  }
  if (status != 0) return Error(errno);
  return NewEntry(header, name);
}

ShareReply ShareFilesystem::Remove(const fuse_in_header& header, std::string_view body) {
  const std::string name = TakeName(&body);
  if (!IsPlainName(name)) return Error(EINVAL);
  return Result(unlinkat(inodes_.Fd(header.nodeid), name.c_str(),
                         header.opcode == FUSE_RMDIR ? AT_REMOVEDIR : 0));
}

ShareReply ShareFilesystem::Rename(const fuse_in_header& header, std::string_view body) {
  fuse_rename2_in in{};
  if (header.opcode == FUSE_RENAME2 ? !Take(&body, &in) : !Take(&body, &in.newdir)) {
    return Error(EINVAL);
  }
  const std::string from = TakeName(&body), to = TakeName(&body);
  if (!IsPlainName(from) || !IsPlainName(to)) return Error(EINVAL);
  // Not RENAME_WHITEOUT, which leaves a character device.
  if ((in.flags & ~uint32_t{RENAME_NOREPLACE | RENAME_EXCHANGE}) != 0) return Error(EINVAL);
  return Result(renameat2(inodes_.Fd(header.nodeid), from.c_str(), inodes_.Fd(in.newdir),
                          to.c_str(), in.flags));
}

ShareReply ShareFilesystem::Link(const fuse_in_header& header, std::string_view body) {
  fuse_link_in in;
  if (!Take(&body, &in)) return Error(EINVAL);
  const std::string name = TakeName(&body);
  if (!IsPlainName(name) || inodes_.Fd(in.oldnodeid) < 0) return Error(EINVAL);
  if (linkat(AT_FDCWD, inodes_.ProcPath(in.oldnodeid).c_str(), inodes_.Fd(header.nodeid),
             name.c_str(), AT_SYMLINK_FOLLOW) != 0) {
    return Error(errno);
  }
  return Lookup(header.nodeid, name);
}

ShareFilesystem::OpenFile* ShareFilesystem::Find(uint64_t handle) {
  const auto found = handles_.find(handle);
  return found == handles_.end() ? nullptr : &found->second;
}

ShareReply ShareFilesystem::NewHandle(UniqueFd fd, bool folder) {
  if (handles_.size() >= kMaxHandles) return Error(ENFILE);
  OpenFile handle;
  if (folder) {
    handle.folder.reset(fdopendir(fd.get()));
    if (handle.folder == nullptr) return Error(errno);
    fd.release();  // the folder's now
  } else {
    handle.fd = std::move(fd);
  }
  fuse_open_out out{};
  out.fh = next_handle_++;
  handles_[out.fh] = std::move(handle);
  return {0, Bytes(out)};
}

ShareReply ShareFilesystem::Open(const fuse_in_header& header, std::string_view body) {
  fuse_open_in in;
  if (!Take(&body, &in)) return Error(EINVAL);
  const bool folder = header.opcode == FUSE_OPENDIR;
  const int flags = folder ? O_RDONLY | O_DIRECTORY : static_cast<int>(in.flags) & kOpenFlags;
  UniqueFd fd(inodes_.Reopen(header.nodeid, flags));
  if (!fd.valid()) return Error(errno);
  return NewHandle(std::move(fd), folder);
}

ShareReply ShareFilesystem::Create(const fuse_in_header& header, std::string_view body) {
  fuse_create_in in;
  if (!Take(&body, &in)) return Error(EINVAL);
  const std::string name = TakeName(&body);
  if (!IsPlainName(name)) return Error(EINVAL);
  // O_NONBLOCK: what has the name may be a pipe by now; it is refused below.
  const int flags = (static_cast<int>(in.flags) & (kOpenFlags | O_EXCL)) | O_CREAT | O_NOFOLLOW |
                    O_NONBLOCK | O_CLOEXEC;
  struct stat before;
  const bool existed =
      fstatat(inodes_.Fd(header.nodeid), name.c_str(), &before, AT_SYMLINK_NOFOLLOW) == 0;
  UniqueFd fd(openat(inodes_.Fd(header.nodeid), name.c_str(), flags, SafeMode(in.mode, false)));
  if (!fd.valid()) return Error(errno);
  struct stat status;
  if (fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) return Error(EOPNOTSUPP);
  ShareReply entry = existed ? Lookup(header.nodeid, name) : NewEntry(header, name);
  if (entry.error != 0) return entry;
  const ShareReply opened = NewHandle(std::move(fd), false);
  if (opened.error != 0) return opened;
  entry.data += opened.data;
  return entry;
}

ShareReply ShareFilesystem::Read(std::string_view body) {
  fuse_read_in in;
  OpenFile* handle = Take(&body, &in) ? Find(in.fh) : nullptr;
  if (handle == nullptr || !handle->fd.valid()) return Error(EBADF);
  std::string data(std::min<size_t>(in.size, kMaxShareData), '\0');
  const ssize_t n = pread(handle->fd.get(), data.data(), data.size(), in.offset);
  if (n < 0) return Error(errno);
  data.resize(n);
  return {0, std::move(data)};
}

ShareReply ShareFilesystem::Write(std::string_view body) {
  fuse_write_in in;
  OpenFile* handle = Take(&body, &in) ? Find(in.fh) : nullptr;
  if (handle == nullptr || !handle->fd.valid() || in.size > body.size()) return Error(EBADF);
  const ssize_t n = pwrite(handle->fd.get(), body.data(), in.size, in.offset);
  if (n < 0) return Error(errno);
  fuse_write_out out{};
  out.size = n;
  return {0, Bytes(out)};
}

ShareReply ShareFilesystem::ReadFolder(std::string_view body) {
  fuse_read_in in;
  OpenFile* handle = Take(&body, &in) ? Find(in.fh) : nullptr;
  if (handle == nullptr || handle->folder == nullptr) return Error(EBADF);
  const size_t limit = std::min<size_t>(in.size, kMaxShareData);
  seekdir(handle->folder.get(), in.offset);
  std::string data;
  while (const dirent* entry = readdir(handle->folder.get())) {
    fuse_dirent out{};
    out.ino = entry->d_ino;
    out.off = entry->d_off;
    out.namelen = std::strlen(entry->d_name);
    out.type = entry->d_type;
    std::string record(reinterpret_cast<const char*>(&out), FUSE_NAME_OFFSET);
    record += entry->d_name;
    record.resize(FUSE_DIRENT_ALIGN(record.size()));
    if (data.size() + record.size() > limit) break;
    data += record;
  }
  return {0, std::move(data)};
}

ShareReply ShareFilesystem::Sync(std::string_view body) {
  fuse_fsync_in in;
  OpenFile* handle = Take(&body, &in) ? Find(in.fh) : nullptr;
  if (handle == nullptr) return Error(EBADF);
  return Result(fsync(handle->folder ? dirfd(handle->folder.get()) : handle->fd.get()));
}

ShareReply ShareFilesystem::Allocate(std::string_view body) {
  fuse_fallocate_in in;
  OpenFile* handle = Take(&body, &in) ? Find(in.fh) : nullptr;
  if (handle == nullptr || !handle->fd.valid()) return Error(EBADF);
  return Result(fallocate(handle->fd.get(), in.mode, in.offset, in.length));
}

ShareReply ShareFilesystem::StatFs(uint64_t node) {
  struct statvfs status;
  const UniqueFd fd(inodes_.Reopen(node, O_RDONLY));
  if (!fd.valid() || fstatvfs(fd.get(), &status) != 0) return Error(errno);
  fuse_statfs_out out{};
  out.st.blocks = status.f_blocks;
  out.st.bfree = status.f_bfree;
  out.st.bavail = status.f_bavail;
  out.st.files = status.f_files;
  out.st.ffree = status.f_ffree;
  out.st.bsize = status.f_bsize;
  out.st.namelen = status.f_namemax;
  out.st.frsize = status.f_frsize;
  return {0, Bytes(out)};
}

void ShareFilesystem::Forget(const fuse_in_header& header, std::string_view body) {
  if (header.opcode == FUSE_FORGET) {
    fuse_forget_in in;
    if (Take(&body, &in)) inodes_.Forget(header.nodeid, in.nlookup);
    return;
  }
  fuse_batch_forget_in batch;
  fuse_forget_one one;
  if (!Take(&body, &batch)) return;
  while (batch.count-- > 0 && Take(&body, &one)) inodes_.Forget(one.nodeid, one.nlookup);
}

}  // namespace smolvm::machine
