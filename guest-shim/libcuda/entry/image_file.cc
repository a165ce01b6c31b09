#include "guest-shim/libcuda/entry/image_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace smolvm::guest {

CUresult ReadImageFile(const char* path, std::vector<char>* bytes) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return CUDA_ERROR_FILE_NOT_FOUND;
  struct stat status {};
  CUresult result = CUDA_SUCCESS;
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) result = CUDA_ERROR_FILE_NOT_FOUND;
  if (static_cast<size_t>(status.st_size) > kMaxImageBytes) result = CUDA_ERROR_INVALID_IMAGE;
  if (result == CUDA_SUCCESS) bytes->resize(static_cast<size_t>(status.st_size));
  for (size_t done = 0; result == CUDA_SUCCESS && done < bytes->size();) {
    const ssize_t got = read(fd, bytes->data() + done, bytes->size() - done);
    if (got <= 0) result = CUDA_ERROR_FILE_NOT_FOUND;
    done += static_cast<size_t>(std::max<ssize_t>(got, 0));
  }
  close(fd);
  bytes->push_back('\0');
  return result;
}

}  // namespace smolvm::guest
