#pragma once

#include <string>
#include <vector>

#include "tests/container/capture.h"

namespace smolvm::gpu {

// Where the tests' containers run: the test process enters a mount namespace of its own, in which
// podman's storage lies on a tmpfs, /dev is a made-up one, /etc can be written to (an overlay), and
// cgroup2's hybrid mount, which crun refuses, is gone. Nothing of the machine outside is changed,
// and all of it vanishes with the process.
//
// *Lifetime*: one for the process, made at the first Get().
class Sandbox {
 public:
  // nullptr when containers cannot run here; `why` then says what is missing.
  static Sandbox* Get(std::string& why);

  // A folder for the tests' own files.
  const std::string& folder() const { return folder_; }
  // A made-up host root, whose /dev is also the sandbox's /dev.
  std::string host_root() const { return folder_ + "/host"; }
  // A podman with the storage, runtime and so on that work here: "runc" or "crun".
  std::string podman(const std::string& runtime = "runc") const { return folder_ + "/" + runtime; }

  // Options that every container here needs, and the image's name, which has busybox's sh.
  static std::string RunOptions();
  static std::string Image() { return "sandbox:1"; }

  void Write(const std::string& path, const std::string& text) const;
  // `path` in the sandbox's /dev.
  void MakeDevice(const std::string& path, unsigned major, unsigned minor) const;
  // A render node of the made-up host, with its by-path link.
  void RenderNode(int number, const std::string& address, const std::string& vendor_id) const;
  // Makes an image of a folder.
  Captured Import(const std::string& tree, const std::string& name) const;

 private:
  Sandbox() = default;
  std::string SetUp();    // "" or what failed
  std::string MakeDev();  // each as SetUp
  std::string MakeEtc();
  std::string MakePodman();

  std::string folder_;
};

}  // namespace smolvm::gpu
