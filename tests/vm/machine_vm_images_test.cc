// Machines from each kind of image, and as an ordinary user.
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "tests/vm/machine_vm_support.h"

namespace smolvm::machine {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TEST_F(MachineVmTest, DebianHasPythonWithCtypes) {
  if (FindProgram("mmdebstrap").empty()) GTEST_SKIP() << "skipped: mmdebstrap is not installed";
  const ToolResult result =
      Machine({"run", "-I", "debian", "--", "python3", "-c",
               "import ctypes; print(ctypes.CDLL('libc.so.6').getpid() > 1)"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "True\n");
}

// A registry of this host, while it lives.
class Registry {
 public:
  explicit Registry(const fs::path& folder) {
    port_ = FreePort();
    std::ofstream(folder / "registry.yml")
        << "version: 0.1\nstorage: {filesystem: {rootdirectory: " << (folder / "registry").string()
        << "}}\nhttp: {addr: '" << Address() << "'}\n";
    pid_ = StartChild({"docker-registry", "serve", folder / "registry.yml"},
                      folder / "registry.log", "");
    for (int tenths = 0; tenths < 300 && !Answers(); ++tenths) usleep(100000);
  }
  ~Registry() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  std::string Address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  static sockaddr_in Loopback(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    return address;
  }
  static int FreePort() {
    const UniqueFd fd(socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address = Loopback(0);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    return ntohs(address.sin_port);
  }
  bool Answers() const {
    const UniqueFd fd(socket(AF_INET, SOCK_STREAM, 0));
    const sockaddr_in address = Loopback(port_);
    return connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }

  int port_ = 0;
  pid_t pid_ = -1;
};

TEST_F(MachineVmTest, PulledFromARegistryAndFromItsArchives) {
  for (const char* program : {"docker-registry", "skopeo", "umoci"}) {
    if (FindProgram(program).empty()) GTEST_SKIP() << "skipped: " << program << " is not installed";
  }
  const std::string layout = folder_.path() / "oci";
  MustRun({"umoci", "init", "--layout", layout}, {.doing = "umoci init"});
  MustRun({"umoci", "new", "--image", layout + ":t"}, {.doing = "umoci new"});
  MustRun({"umoci", "insert", "--rootless", "--image", layout + ":t", TinyImage(), "/"},
          {.doing = "umoci insert"});
  MustRun({"umoci", "config", "--image", layout + ":t", "--config.env", "FROM=image",
           "--config.workingdir", "/bin", "--config.cmd", "sh", "--config.cmd", "-c",
           "--config.cmd", "echo default $FROM; pwd"},
          {.doing = "umoci config"});
  Registry registry(folder_.path());
  const std::string reference = registry.Address() + "/test/tiny:1";
  const Words push = {"skopeo", "--insecure-policy", "copy", "--quiet", "--dest-tls-verify=false"};
  const auto copy = [&](const std::string& target) {
    Words words = push;
    words.insert(words.end(), {"oci:" + layout + ":t", target});
    MustRun(words, {.doing = "skopeo copy to " + target});
  };
  copy("docker://" + reference);
  const std::string archive = folder_.path() / "docker.tar";
  copy("docker-archive:" + archive + ":test/tiny:1");
  more_environment_ = {{"SMOLVM_INSECURE_REGISTRY", registry.Address()},
                       {"XDG_CACHE_HOME", folder_.path() / "cache"}};
  fs::create_directories(folder_.path() / "cache/smolvm-cuda");
  fs::copy(fs::path(SMOLVM_TEST_CACHE) / "smolvm-cuda/kernels",
           folder_.path() / "cache/smolvm-cuda/kernels", fs::copy_options::recursive);

  ToolResult result = Machine({"run", "--mem", "256", "-I", reference});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "default image\n/bin\n");
  result = Machine({"run", "--mem", "256", "-I", archive, "-e", "FROM=here", "--", "sh", "-c",
                    "echo own $FROM"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "own here\n");
  result = Machine({"run", "-I", registry.Address() + "/test/absent:1", "--", "true"});
  EXPECT_EQ(result.status, 125);
  EXPECT_THAT(result.err, HasSubstr("manifest unknown"));
  // A named image has no substitute.
  result = Machine({"run", "-I", "127.0.0.1:1/test/tiny:1", "--", "true"});
  EXPECT_EQ(result.status, 125);
  EXPECT_THAT(result.err, HasSubstr("connection refused"));
}

TEST_F(MachineVmTest, AnOrdinaryUser) {
  if (geteuid() != 0) GTEST_SKIP() << "skipped: the other tests ran as an ordinary user already";
  if (FindProgram("setpriv").empty()) GTEST_SKIP() << "skipped: setpriv is not installed";
  constexpr uid_t kUser = 65534;
  // Copies, since the build folder may be closed to others.
  char home_template[] = "/tmp/smolvm-user-XXXXXX";
  const fs::path home = mkdtemp(home_template);
  for (const char* program : {SMOLVM_PROGRAM, SMOLVM_AGENT, SMOLVM_VSOCK_DEVICE}) {
    fs::copy_file(program, home / fs::path(program).filename());
  }
  fs::copy(TinyImage(), home / "tiny",
           fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  fs::create_directory(home / "share");
  MustRun({"chown", "-R", std::to_string(kUser), home.string()}, {.doing = "chown"});
  const ToolResult result = RunTool({"setpriv",
                                     "--reuid=65534",
                                     "--regid=65534",
                                     "--clear-groups",
                                     "env",
                                     "-i",
                                     "HOME=" + home.string(),
                                     "PATH=/usr/bin:/bin",
                                     (home / "smolvm").string(),
                                     "machine",
                                     "run",
                                     "--mem",
                                     "256",
                                     "-I",
                                     (home / "tiny").string(),
                                     "-v",
                                     (home / "share").string() + ":/share",
                                     "--",
                                     "sh",
                                     "-c",
                                     "id -u; echo made > /share/made; exit 3"},
                                    {});
  EXPECT_EQ(result.status, 3) << result.err;
  EXPECT_EQ(result.out, "0\n");
  EXPECT_EQ(ReadFile(home / "share/made"), "made\n");
  struct stat status {};
  EXPECT_EQ(stat((home / "share/made").c_str(), &status), 0);
  EXPECT_EQ(status.st_uid, kUser);
  EXPECT_TRUE(fs::exists(home / ".cache/smolvm-cuda/kernels/current"));
  EXPECT_FALSE(fs::exists(home / ".local/state/smolvm/machines/tiny"));
  RemoveTree(home);
}

}  // namespace
}  // namespace smolvm::machine
