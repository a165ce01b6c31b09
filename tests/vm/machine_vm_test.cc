// Real machines: commands, streams, signals, shares, kept machines, and what is left after the
// worst.
#include <signal.h>
#include <unistd.h>

#include <fstream>

#include "tests/vm/machine_vm_support.h"

namespace smolvm::machine {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(MachineVmTest, StreamsAndStatus) {
  const ToolResult result =
      Machine({"run", "--mem", "256", "-I", TinyImage(), "-e", "GIVEN=a b", "-w", "/made/here",
               "--", "sh", "-c", "echo \"out $GIVEN\"; pwd; id -u; echo err >&2; exit 42"});
  EXPECT_EQ(result.status, 42) << result.err;
  EXPECT_EQ(result.out, "out a b\n/made/here\n0\n");
  EXPECT_THAT(result.err, HasSubstr("Starting ephemeral machine (vm-"));
  EXPECT_THAT(result.err, HasSubstr("err\n"));
  EXPECT_EQ(Machine({"list"}).out, "No machines found\n");
}

TEST_F(MachineVmTest, SharesBothWays) {
  const fs::path rw = folder_.path() / "rw", ro = folder_.path() / "ro";
  fs::create_directories(rw / "sub");
  fs::create_directories(ro);
  std::ofstream(rw / "old") << "old\n";
  std::ofstream(ro / "fixed") << "fixed\n";
  std::string large(3000000, 'x');
  for (size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>(i * 2654435761u >> 13);
  std::ofstream(ro / "large", std::ios::binary) << large;
  const ToolResult result = Machine(
      {"run", "--mem", "256", "-I", TinyImage(), "-v", rw.string() + ":/rw", "-v",
       ro.string() + ":/mnt/ro:ro", "-v", (ro / "fixed").string() + ":/etc/one:ro", "--", "sh",
       "-c",
       "cat /rw/old /mnt/ro/fixed /etc/one; echo new > /rw/sub/new; cat /mnt/ro/large > /rw/large; "
       "echo more >> /rw/old; mv /rw/sub /rw/moved; echo x > /mnt/ro/x; echo x > /etc/one; "
       "echo late > /rw/late"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "old\nfixed\nfixed\n");
  EXPECT_EQ(ReadFile(rw / "moved/new"), "new\n");
  EXPECT_EQ(ReadFile(rw / "old"), "old\nmore\n");
  EXPECT_EQ(ReadFile(rw / "late"), "late\n");
  EXPECT_TRUE(ReadFile(rw / "large", 4 << 20) == large);
  EXPECT_FALSE(fs::exists(ro / "x"));
  EXPECT_EQ(ReadFile(ro / "fixed"), "fixed\n");
  EXPECT_THAT(result.err, HasSubstr("Read-only file system"));
}

TEST_F(MachineVmTest, AKeptMachineIsReEntered) {
  const std::string name = "smolskill-kept";
  const auto exec = [&](Words words) {
    Words all = {"exec", "--name", name};
    all.insert(all.end(), words.begin(), words.end());
    return Machine(all);
  };
  ToolResult result = Machine({"run", "--mem", "256", "-d", "-n", name, "-I", TinyImage(), "--",
                               "sh", "-c", "echo main > /main; sleep 10000"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(Machine({"list"}).out, HasSubstr("\n" + name + "  running"));
  EXPECT_THAT(Machine({"list", "--json"}).out, HasSubstr("\"status\": \"running\""));

  result = exec({"--", "sh", "-c", "cat /main; echo kept > /kept; exit 5"});
  EXPECT_EQ(result.status, 5) << result.err;
  EXPECT_EQ(result.out, "main\n");
  EXPECT_EQ(exec({"--", "no-such-program"}).status, 127);
  EXPECT_EQ(exec({"--", "/main"}).status, 126);
  EXPECT_EQ(exec({"--", "sh", "-c", "kill -9 $$"}).status, 137);
  result = exec({"--timeout", "1s", "--", "sleep", "10000"});
  EXPECT_EQ(result.status, 124) << result.err;

  // Two commands at once, and another machine beside it.
  const fs::path first = folder_.path() / "first";
  const pid_t waiting = StartMachine({"exec", "-n", name, "--", "sh", "-c",
                                      "echo up; while ! test -e /go; do sleep 1; done; echo went"},
                                     first);
  EXPECT_TRUE(WaitForText(first, "up"));
  result = Machine({"run", "--mem", "256", "-I", TinyImage(), "--", "cat", "/kept"});
  EXPECT_EQ(result.status, 1) << "the machines share a disk";
  EXPECT_EQ(exec({"--", "touch", "/go"}).status, 0);
  EXPECT_EQ(Wait(waiting), 0);
  EXPECT_THAT(FileTail(first, 1000), HasSubstr("went"));

  EXPECT_EQ(Machine({"stop", "--name", name}).status, 0);
  EXPECT_TRUE(Helpers().empty());
  result = Machine({"stop", name});  // it is stopped, so there is nothing to do
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(Machine({"list"}).out, HasSubstr("\n" + name + "  stopped"));
  result = exec({"--", "cat", "/kept"});  // starts it again
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "kept\n");
  EXPECT_EQ(Machine({"delete", "--name", name}).status, 125);  // it runs
  EXPECT_EQ(Machine({"delete", "--name", name, "--force"}).status, 0);
  EXPECT_EQ(Machine({"list"}).out, "No machines found\n");
}

TEST_F(MachineVmTest, InterruptsAndKilledLaunchersLeaveNothing) {
  const Words words = {
      "run", "--mem", "256", "-I", TinyImage(), "--", "sh", "-c", "echo up; sleep 10000"};
  const fs::path first = folder_.path() / "first", second = folder_.path() / "second";
  const pid_t interrupted = StartMachine(words, first), killed = StartMachine(words, second);
  ASSERT_TRUE(WaitForText(first, "up\n")) << FileTail(first, 1000);
  ASSERT_TRUE(WaitForText(second, "up\n")) << FileTail(second, 1000);
  EXPECT_GE(Helpers().size(), 4u);
  kill(interrupted, SIGINT);
  EXPECT_EQ(Wait(interrupted), 130);
  kill(killed, SIGKILL);
  EXPECT_EQ(Wait(killed), 137);
  EXPECT_TRUE(WaitUntilGone());
}

TEST_F(MachineVmTest, ADeadVsockDeviceEndsTheMachine) {
  const fs::path output = folder_.path() / "output";
  const pid_t launcher = StartMachine(
      {"run", "--mem", "256", "-I", TinyImage(), "--", "sh", "-c", "echo up; sleep 10000"}, output);
  ASSERT_TRUE(WaitForText(output, "up\n")) << FileTail(output, 1000);
  for (const pid_t pid : Helpers()) {
    if (NameOf(pid) == "smolvm-vsock-device") kill(pid, SIGKILL);
  }
  EXPECT_EQ(Wait(launcher), 125);
  EXPECT_THAT(FileTail(output, 1000), HasSubstr("the vsock device was ended by signal 9"));
}

TEST_F(MachineVmTest, AMachineThatIsNotReadyInTime) {
  const ToolResult result = Machine({"run", "--mem", "256", "--ready-timeout", "1s", "-I",
                                     TinyImage(), "--", "sh", "-c", "true"});
  if (result.status == 0) GTEST_SKIP() << "skipped: this host boots a machine within a second";
  EXPECT_EQ(result.status, 125);
  EXPECT_THAT(result.err, HasSubstr("not ready within 1 s: "));
}

TEST_F(MachineVmTest, BadInputIsOneLineAndLeavesNothing) {
  const std::string tiny = TinyImage();
  const std::pair<Words, std::string> cases[] = {
      {{"run", "--bogus", "--", "true"}, "--bogus"},
      {{"run", "--gpu", "--", "true"}, "Vulkan"},
      {{"run", "-I", "./no-such-folder", "--", "true"}, "No such file"},
      {{"run", "-I", tiny, "--mem", "64", "--", "true"}, "128 MiB at least"},
      {{"run", "-I", tiny, "--mem", "1000000000", "--", "true"}, "this host has"},
      {{"run", "-I", tiny, "-v", "relative:/x", "--", "true"}, "absolute"},
      {{"run", "-I", tiny, "-v", "/no-such-folder:/x", "--", "true"}, "No such file"},
      {{"run", "-I", tiny}, "names no command"},
      {{"prune", "--all"}, "--name"},
      {{"stop", "--name", "nobody"}, "no machine named"},
  };
  for (const auto& [words, expected] : cases) {
    const ToolResult result = Machine(words);
    EXPECT_EQ(result.status, 125);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, StartsWith("smolvm: "));
    EXPECT_THAT(result.err, HasSubstr(expected));
    EXPECT_EQ(result.err.find('\n'), result.err.size() - 1) << result.err;
  }
}

TEST_F(MachineVmTest, AMuslImageAndADaemonThatDies) {
  const fs::path tree = folder_.path() / "musl", libraries = folder_.path() / "libraries";
  fs::create_directories(libraries);
  fs::create_directories(tree / "lib");
  std::ofstream(tree / "lib/ld-musl-x86_64.so.1") << "x";
  std::ofstream(libraries / "libcuda.so.1") << "x";
  more_environment_ = {{"SMOLVM_CUDA_DAEMON", "/bin/false"}, {"SMOLVM_CUDA_GUEST_LIBS", libraries}};
  const ToolResult result = Machine({"run", "--cuda", "--mem", "256", "-I", tree, "--", "/x"});
  EXPECT_EQ(result.status, 125);
  EXPECT_THAT(result.err, HasSubstr("built on musl, and the CUDA library needs glibc"));
  EXPECT_THAT(result.err, HasSubstr("the CUDA daemon ended with status 1"));
}

}  // namespace
}  // namespace smolvm::machine
