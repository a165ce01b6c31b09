#include "machine/guest/cpio.h"

#include <fmt/format.h>
#include <sys/stat.h>

namespace smolvm::machine {
namespace {

// The kernel wants the next archive at a multiple of 4; tools like the customary block.
constexpr size_t kBlock = 512;

void PadTo(std::string* out, size_t unit) { out->resize((out->size() + unit - 1) / unit * unit); }

}  // namespace

void CpioWriter::Entry(std::string_view path, unsigned mode, std::string_view content,
                       unsigned major, unsigned minor) {
  const unsigned links = S_ISDIR(mode) ? 2 : 1;
  out_ += fmt::format(
      "070701{:08X}{:08X}{:08X}{:08X}{:08X}{:08X}{:08X}{:08X}{:08X}{:08X}{:08X}{:08X}{:08X}",
      ++inode_, mode, 0, 0, links, 0, content.size(), 0, 0, major, minor, path.size() + 1, 0);
  out_ += path;
  out_ += '\0';
  PadTo(&out_, 4);
  out_ += content;
  PadTo(&out_, 4);
}

void CpioWriter::AddFolder(std::string_view path, unsigned mode) {
  Entry(path, S_IFDIR | mode, {}, 0, 0);
}

void CpioWriter::AddFile(std::string_view path, std::string_view content, unsigned mode) {
  Entry(path, S_IFREG | mode, content, 0, 0);
}

void CpioWriter::AddDevice(std::string_view path, unsigned major, unsigned minor) {
  Entry(path, S_IFCHR | 0600, {}, major, minor);
}

std::string CpioWriter::Finish() {
  Entry("TRAILER!!!", 0, {}, 0, 0);
  PadTo(&out_, kBlock);
  return std::move(out_);
}

}  // namespace smolvm::machine
