#include "container/remote.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "tests/unit/container/fixture.h"

namespace smolvm::gpu {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

void MakeSocket(const FixtureHost& fixture, const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string real = fixture.Real(path);
  std::filesystem::create_directories(std::filesystem::path(real).parent_path());
  ASSERT_LT(real.size(), sizeof(address.sun_path));
  std::strcpy(address.sun_path, real.c_str());
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  close(fd);
}

Remoting Example() { return {"/opt/smolvm-cuda", "/run/cuda.sock", "", GpuSelector::All()}; }

std::string Refusal(const Remoting& remoting, const FixtureHost& fixture) {
  try {
    CheckRemoting(remoting, HostRoot(fixture.Real("/")));
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

TEST(Remote, ArgumentsMountLibrariesAndSocket) {
  EXPECT_EQ(
      RemoteRunArgs(Example()),
      (Words{"--mount", "type=bind,source=/opt/smolvm-cuda,destination=/opt/smolvm-cuda,ro=true",
             "--mount", "type=bind,source=/run/cuda.sock,destination=/run/smolvm-cuda/daemon.sock",
             "-e", "SMOLVM_CUDA_ENDPOINT=unix:/run/smolvm-cuda/daemon.sock", "-e",
             "LD_LIBRARY_PATH=/opt/smolvm-cuda"}));
}

TEST(Remote, TheSelectorNamesTheDaemonsDevices) {
  Remoting remoting = Example();
  remoting.devices = normalize_gpus("nvidia:2,nvidia:0");
  EXPECT_EQ(RemoteRunArgs(remoting).back(), "CUDA_VISIBLE_DEVICES=0,2");
  remoting.devices = normalize_gpus("nvidia");
  EXPECT_EQ(RemoteRunArgs(remoting), RemoteRunArgs(Example()));
  remoting.devices = GpuSelector();
  EXPECT_THAT(RemoteRunArgs(remoting), IsEmpty());
}

TEST(Remote, TheImagesLibraryPathCanBeKept) {
  Remoting remoting = Example();
  remoting.more_library_path = "/usr/local/nvidia/lib64";
  EXPECT_EQ(RemoteRunArgs(remoting).back(),
            "LD_LIBRARY_PATH=/opt/smolvm-cuda:/usr/local/nvidia/lib64");
}

TEST(Remote, TheCdiSpecSaysTheSame) {
  Remoting remoting = Example();
  remoting.devices = normalize_gpus("nvidia:1");
  const nlohmann::json spec = nlohmann::json::parse(RemoteCdiSpec(remoting));
  EXPECT_EQ(spec, nlohmann::json::parse(R"({
    "cdiVersion": "0.5.0",
    "kind": "smolvm.dev/cuda",
    "devices": [{
      "name": "all",
      "containerEdits": {
        "env": ["SMOLVM_CUDA_ENDPOINT=unix:/run/smolvm-cuda/daemon.sock",
                "LD_LIBRARY_PATH=/opt/smolvm-cuda", "CUDA_VISIBLE_DEVICES=1"],
        "mounts": [
          {"hostPath": "/opt/smolvm-cuda", "containerPath": "/opt/smolvm-cuda",
           "options": ["ro", "nosuid", "nodev", "bind"]},
          {"hostPath": "/run/cuda.sock", "containerPath": "/run/smolvm-cuda/daemon.sock",
           "options": ["rw", "nosuid", "nodev", "noexec", "bind"]}]
      }
    }]
  })"));
}

TEST(Remote, ChecksThatLibrariesAndSocketAreThere) {
  FixtureHost fixture;
  EXPECT_THAT(Refusal(Example(), fixture), HasSubstr("/opt/smolvm-cuda holds no libcuda.so.1"));
  fixture.Write("/opt/smolvm-cuda/libcuda.so.1", "");
  EXPECT_THAT(Refusal(Example(), fixture), HasSubstr("/run/cuda.sock does not exist"));
  fixture.Write("/run/cuda.sock", "");
  EXPECT_THAT(Refusal(Example(), fixture), HasSubstr("not a Unix socket"));
  std::filesystem::remove(fixture.Real("/run/cuda.sock"));
  MakeSocket(fixture, "/run/cuda.sock");
  EXPECT_EQ(Refusal(Example(), fixture), "");
}

TEST(Remote, PathsThatMountCannotCarryAreRefused) {
  FixtureHost fixture;
  for (const char* path : {"", "relative", "/a,b", "/a\"b", "/a\nb", "/a\xff"}) {
    Remoting remoting = Example();
    remoting.socket = path;
    EXPECT_THAT(Refusal(remoting, fixture), HasSubstr("cannot be mounted")) << path;
    remoting = Example();
    remoting.library_folder = path;
    EXPECT_THAT(Refusal(remoting, fixture), HasSubstr("cannot be mounted")) << path;
  }
}

TEST(Remote, OnlyNvidiasDevicesAreCuda) {
  FixtureHost fixture;
  Remoting remoting = Example();
  remoting.devices = normalize_gpus("amd");
  EXPECT_THAT(Refusal(remoting, fixture), HasSubstr("'amd' has no CUDA devices"));
}

TEST(Remote, FindsTheLibraries) {
  FixtureHost fixture;
  const HostRoot root = fixture.host().root;
  EXPECT_EQ(FindLibraryFolder("/x", root, ""), "/x");
  EXPECT_THROW(FindLibraryFolder("", root, "/usr/bin"), GpuConfigError);
  fixture.Write("/usr/lib/libcuda.so.1", "");  // a real driver's, never ours
  EXPECT_THROW(FindLibraryFolder("", root, "/usr/bin"), GpuConfigError);
  fixture.Write("/usr/lib/smolvm-cuda/libcuda.so.1", "");
  EXPECT_EQ(FindLibraryFolder("", root, ""), "/usr/lib/smolvm-cuda");
  fixture.Write("/opt/smolvm-cuda/libcuda.so.1", "");
  EXPECT_EQ(FindLibraryFolder("", root, ""), "/opt/smolvm-cuda");
  fixture.Write("/src/build/lib/libcuda.so.1", "");
  EXPECT_EQ(FindLibraryFolder("", root, "/src/build/bin"), "/opt/smolvm-cuda");
  // A build's lib holds much that is no business of a container's.
  fixture.Write("/src/build/CMakeCache.txt", "");
  EXPECT_EQ(FindLibraryFolder("", root, "/src/build/bin"), "/opt/smolvm-cuda");
  fixture.Write("/src/build/lib/smolvm-cuda/libcuda.so.1", "");
  EXPECT_EQ(FindLibraryFolder("", root, "/src/build/bin"), "/src/build/lib/smolvm-cuda");
  setenv("SMOLVM_CUDA_LIBRARIES", "/named", 1);
  EXPECT_EQ(FindLibraryFolder("", root, "/src/build/bin"), "/named");
  unsetenv("SMOLVM_CUDA_LIBRARIES");
}

TEST(Remote, FindsTheSocket) {
  FixtureHost fixture;
  const HostRoot root = fixture.host().root;
  EXPECT_EQ(FindDaemonSocket("/x", root), "/x");
  EXPECT_THROW(FindDaemonSocket("", root), GpuConfigError);
  MakeSocket(fixture, "/run/smolvm-cuda/daemon.sock");
  EXPECT_EQ(FindDaemonSocket("", root), "/run/smolvm-cuda/daemon.sock");
  MakeSocket(fixture, "/u/smolvm-cuda/daemon.sock");
  setenv("XDG_RUNTIME_DIR", "/u", 1);
  EXPECT_EQ(FindDaemonSocket("", root), "/u/smolvm-cuda/daemon.sock");
  setenv("SMOLVM_CUDA_ENDPOINT", "vsock:2:7000", 1);
  EXPECT_EQ(FindDaemonSocket("", root), "/u/smolvm-cuda/daemon.sock");
  setenv("SMOLVM_CUDA_ENDPOINT", "unix:/e", 1);
  EXPECT_EQ(FindDaemonSocket("", root), "/e");
  setenv("SMOLVM_CUDA_SOCKET", "/s", 1);
  EXPECT_EQ(FindDaemonSocket("", root), "/s");
  for (const char* name : {"XDG_RUNTIME_DIR", "SMOLVM_CUDA_ENDPOINT", "SMOLVM_CUDA_SOCKET"}) {
    unsetenv(name);
  }
}

}  // namespace
}  // namespace smolvm::gpu
