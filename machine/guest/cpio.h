// Writes a "newc" cpio archive, the format of an initramfs
// (Documentation/driver-api/early-userspace/ buffer-format.rst in the kernel).
#pragma once

#include <string>
#include <string_view>

namespace smolvm::machine {

class CpioWriter {
 public:
  // Paths have no leading slash; parents come before children.
  void AddFolder(std::string_view path, unsigned mode = 0755);
  void AddFile(std::string_view path, std::string_view content, unsigned mode = 0644);
  void AddDevice(std::string_view path, unsigned major, unsigned minor);
  // Ends the archive, padded so that another may follow it.
  std::string Finish();

 private:
  void Entry(std::string_view path, unsigned mode, std::string_view content, unsigned major,
             unsigned minor);

  std::string out_;
  unsigned inode_ = 0;
};

}  // namespace smolvm::machine
