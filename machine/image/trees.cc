// Root file systems that are not OCI images: tarballs, and a Debian made on the spot.
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "machine/image/unpack.h"
#include "machine/util/files.h"
#include "machine/util/progress.h"
#include "machine/util/tool.h"

namespace smolvm::machine {
namespace {

namespace fs = std::filesystem;

// A shell, the small tools and python3 with ctypes.
constexpr char kDebianPackages[] =
    "base-files,base-passwd,bash,coreutils,dash,debianutils,findutils,grep,gzip,hostname,libc-bin,"
    "libstdc++6,ncurses-base,procps,sed,tar,python3-minimal,libpython3-stdlib";

void CopyIfMissing(const fs::path& from, const fs::path& to) {
  std::error_code error;
  if (fs::exists(from, error) && !fs::exists(to, error)) fs::copy_file(from, to, error);
}

// What the packages' own scripts would do; they are not run, so that no root is needed.
void FinishDebianTree(const fs::path& tree) {
  std::error_code error;
  CopyIfMissing(tree / "usr/share/base-passwd/passwd.master", tree / "etc/passwd");
  CopyIfMissing(tree / "usr/share/base-passwd/group.master", tree / "etc/group");
  CopyIfMissing(tree / "usr/share/libc-bin/nsswitch.conf", tree / "etc/nsswitch.conf");
  if (!fs::exists(fs::symlink_status(tree / "bin/sh"))) {
    fs::create_symlink("dash", tree / "bin/sh", error);
  }
  for (const char* folder : {"usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info",
                             "var/cache/apt", "var/lib/apt"}) {
    RemoveTree(tree / folder);
  }
  unlink((tree / "etc/resolv.conf").c_str());
  std::ofstream(tree / "etc/hostname") << "machine\n";
  chmod((tree / "etc/hostname").c_str(), 0644);
}

}  // namespace

void UnpackTarball(const fs::path& archive, const fs::path& tree, const Expansion& expansion) {
  MakeFolders(tree);
  std::vector<std::string> argv = {"tar", "-xf", archive.string(), "-C", tree.string()};
  // An ordinary user can make no devices; a machine has its own /dev.
  if (geteuid() == 0) {
    argv.insert(argv.end(), {"--numeric-owner", "--xattrs", "--xattrs-include=*"});
  } else {
    argv.insert(argv.end(), {"--no-same-owner", "--exclude=dev/*", "--exclude=./dev/*"});
  }
  MustRun(argv, {.doing = "unpacking " + archive.string(),
                 .problem = [&] { return expansion.Problem(); }});
}

void MakeDebianTree(const std::string& suite, const fs::path& tree) {
  const char* mode = geteuid() == 0 ? "--mode=root" : "--mode=chrootless";
  MustRun({"mmdebstrap", mode, "--variant=extract", std::string("--include=") + kDebianPackages,
           suite, tree.string()},
          {.doing = "making a Debian tree (" + suite + ")",
           .env = {{"TMPDIR", tree.parent_path().string()}}});
  FinishDebianTree(tree);
}

}  // namespace smolvm::machine
