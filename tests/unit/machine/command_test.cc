// The smolvm program as a shell sees it: what it prints and its status. No machine is started.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <string>

namespace smolvm::machine {
namespace {

using ::testing::HasSubstr;

struct Outcome {
  int status = -1;
  std::string output;
};

// By the shell, so `arguments` may redirect.
Outcome RunSmolvm(const std::string& arguments) {
  Outcome outcome;
  FILE* pipe = popen((SMOLVM " " + arguments + " </dev/null").c_str(), "re");
  if (pipe == nullptr) return outcome;
  char bytes[4096];
  while (const size_t got = fread(bytes, 1, sizeof bytes, pipe)) outcome.output.append(bytes, got);
  const int status = pclose(pipe);
  if (WIFEXITED(status)) outcome.status = WEXITSTATUS(status);
  return outcome;
}

TEST(CommandTest, AFullDiskIsNoSuccess) {
  for (const char* arguments :
       {"--help", "--version", "machine --help", "machine run --help", "gpu --help"}) {
    EXPECT_EQ(RunSmolvm(arguments).status, 0) << arguments;
    const Outcome full = RunSmolvm(std::string("2>&1 >/dev/full ") + arguments);
    EXPECT_EQ(full.status, 125) << arguments;
    EXPECT_THAT(full.output, HasSubstr("No space left on device")) << arguments;
  }
}

TEST(CommandTest, NoMemoryIsNotTheDefault) {
  const Outcome outcome = RunSmolvm("machine run --mem 0 -- true 2>&1");
  EXPECT_EQ(outcome.status, 125);
  EXPECT_THAT(outcome.output, HasSubstr("--mem 0: a machine needs 128 MiB"));
}

}  // namespace
}  // namespace smolvm::machine
