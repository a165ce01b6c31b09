#pragma once

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace smolvm {

// fstat(2) by the call that takes a descriptor alone. The C library's takes a path too
// (newfstatat), which a filter of system calls cannot tell from asking about any file.
inline bool StatusOf(int fd, struct stat* status) { return syscall(SYS_fstat, fd, status) == 0; }

}  // namespace smolvm
