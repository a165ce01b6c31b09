#include "machine/launch/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "machine/launch/environment.h"
#include "machine/util/failure.h"

namespace smolvm::machine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Options Parse(std::vector<const char*> words) {
  words.insert(words.begin(), "machine");
  return ParseOptions(words.size(), words.data());
}

std::string WhyNot(std::vector<const char*> words) {
  try {
    Parse(std::move(words));
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.status(), kOwnError);
    EXPECT_EQ(std::string(failure.what()).find('\n'), std::string::npos) << failure.what();
    return failure.what();
  }
  return "it was accepted";
}

TEST(OptionsTest, RunTakesEverything) {
  const Options options = Parse({"run",       "--cuda",
                                 "--net",     "--mem",
                                 "8192",      "--cpus",
                                 "2",         "-v",
                                 "/a:/b",     "--volume",
                                 "/c:/d:ro",  "-e",
                                 "A=1",       "--env",
                                 "B=x y",     "-w",
                                 "/tmp",      "-i",
                                 "-t",        "--timeout",
                                 "30s",       "-I",
                                 "./rootfs/", "-n",
                                 "box",       "--ready-timeout",
                                 "2m",        "--",
                                 "sh",        "-c",
                                 "exit 3"});
  EXPECT_EQ(options.verb, "run");
  EXPECT_TRUE(options.cuda);
  EXPECT_TRUE(options.net);
  EXPECT_EQ(options.memory_mib, 8192u);
  EXPECT_EQ(options.cpus, 2u);
  EXPECT_THAT(options.volumes, ElementsAre("/a:/b", "/c:/d:ro"));
  EXPECT_THAT(options.env, ElementsAre("A=1", "B=x y"));
  EXPECT_EQ(options.workdir, "/tmp");
  EXPECT_TRUE(options.interactive);
  EXPECT_TRUE(options.tty);
  EXPECT_EQ(options.timeout_ms, 30000u);
  EXPECT_EQ(options.image, "./rootfs/");
  EXPECT_EQ(options.name, "box");
  EXPECT_EQ(options.ready_timeout_s, 120u);
  EXPECT_THAT(options.command, ElementsAre("sh", "-c", "exit 3"));
}

TEST(OptionsTest, TheCommandIsNotLookedAt) {
  const Options options = Parse({"run", "--", "--help", "-x", "--", "--cuda"});
  EXPECT_THAT(options.command, ElementsAre("--help", "-x", "--", "--cuda"));
  EXPECT_FALSE(options.cuda);
}

TEST(OptionsTest, HelpIsNoError) {
  try {
    Parse({"run", "--help"});
    FAIL() << "no help";
  } catch (const ParseEnd& end) {
    EXPECT_EQ(end.status, 0);
    EXPECT_THAT(end.text, HasSubstr("--ready-timeout"));
    EXPECT_THAT(end.text, HasSubstr("0, the default"));
  }
}

TEST(OptionsTest, WrongOnesAreRefusedInOneLine) {
  EXPECT_THAT(WhyNot({"run", "--bogus", "--", "true"}), HasSubstr("--bogus"));
  EXPECT_THAT(WhyNot({"run", "echo", "hi"}), HasSubstr("after '--'"));
  EXPECT_THAT(WhyNot({"run", "--mem", "lots", "--", "true"}), HasSubstr("--mem"));
  EXPECT_THAT(WhyNot({"run", "--gpu", "--", "true"}), HasSubstr("Vulkan"));
  EXPECT_THAT(WhyNot({"run", "-n", "../x", "--", "true"}), HasSubstr("not a machine name"));
  EXPECT_THAT(WhyNot({"run", "--name", "", "--", "true"}), HasSubstr("not a machine name"));
  EXPECT_THAT(WhyNot({"delete", "--name", ""}), HasSubstr("not a machine name"));
  EXPECT_THAT(WhyNot({"run", "--mem", "-5", "--", "true"}),
              HasSubstr("--mem: '-5' is not a whole number"));
  EXPECT_THAT(WhyNot({"run", "--cpus", "1.5", "--", "true"}),
              HasSubstr("--cpus: '1.5' is not a whole number"));
  EXPECT_THAT(WhyNot({"run", "-w", "tmp", "--", "true"}), HasSubstr("absolute"));
  EXPECT_THAT(WhyNot({"run", "-e", "SMOLVM_CUDA_LOG=loud", "--", "true"}),
              HasSubstr("the levels are off, error, warn, info and debug"));
  EXPECT_THAT(WhyNot({"run", "-d", "-i", "-n", "a"}), HasSubstr("--detach"));
  EXPECT_THAT(WhyNot({"run", "-d"}), HasSubstr("--name"));
  EXPECT_THAT(WhyNot({"exec", "-n", "a"}), HasSubstr("command"));
  EXPECT_THAT(WhyNot({"prune", "--all"}), HasSubstr("--name"));
  EXPECT_THAT(WhyNot({"delete"}), HasSubstr("--name"));
  EXPECT_THAT(WhyNot({"--fly"}), HasSubstr("'--fly' is not an option"));
  EXPECT_THAT(WhyNot({"fly"}), HasSubstr("fly"));
  EXPECT_NE(WhyNot({}), "it was accepted");
}

TEST(OptionsTest, NamesAreArgumentsOrAnOption) {
  const Options exec = Parse({"exec", "box", "-i", "--", "stop", "--name"});
  EXPECT_THAT(exec.names, ElementsAre("box"));
  EXPECT_TRUE(exec.interactive);
  EXPECT_THAT(exec.command, ElementsAre("stop", "--name"));
  EXPECT_THAT(Parse({"exec", "-n", "box", "--", "true"}).names, ElementsAre("box"));
  for (const char* verb : {"stop", "delete", "prune", "list"}) {
    EXPECT_THAT(Parse({verb, "a", "b", "a"}).names, ElementsAre("a", "b")) << verb;
    EXPECT_THAT(Parse({verb, "--name", "a"}).names, ElementsAre("a")) << verb;
    EXPECT_THAT(WhyNot({verb, "a", "--name", "b"}), HasSubstr("not both")) << verb;
    EXPECT_THAT(WhyNot({verb, "a", "../b"}), HasSubstr("'../b' is not a machine name")) << verb;
  }
  for (const char* verb : {"stop", "delete", "prune"}) {
    EXPECT_THAT(WhyNot({verb}), HasSubstr("as an argument or with --name")) << verb;
  }
  EXPECT_THAT(Parse({"list"}).names, ::testing::IsEmpty());
  EXPECT_THAT(WhyNot({"exec", "--", "true"}), HasSubstr("as an argument or with --name"));
  EXPECT_THAT(WhyNot({"exec", "box", "ls"}), HasSubstr("a command goes after '--'"));
  EXPECT_THAT(WhyNot({"run", "box", "--", "ls"}), HasSubstr("box"));
}

TEST(OptionsTest, HelpShowsWhereTheNameGoes) {
  const auto help = [](const char* verb) {
    try {
      Parse({verb, "--help"});
    } catch (const ParseEnd& end) {
      return end.text;
    }
    return std::string();
  };
  EXPECT_THAT(help("exec"), HasSubstr("smolvm machine exec [OPTIONS] NAME -- CMD...\n"));
  EXPECT_THAT(help("run"), HasSubstr("smolvm machine run [OPTIONS] [-- CMD...]\n"));
  EXPECT_THAT(help("list"), HasSubstr("smolvm machine list [OPTIONS] [NAME...]\n"));
  for (const char* verb : {"stop", "delete", "prune"}) {
    EXPECT_THAT(help(verb), HasSubstr(std::string(verb) + " [OPTIONS] NAME...\n"));
  }
}

TEST(OptionsTest, Durations) {
  EXPECT_EQ(ParseDuration("30s"), 30000u);
  EXPECT_EQ(ParseDuration("30"), 30000u);
  EXPECT_EQ(ParseDuration("250ms"), 250u);
  EXPECT_EQ(ParseDuration("5m"), 300000u);
  EXPECT_EQ(ParseDuration("1h"), 3600000u);
  for (const char* bad : {"", "s", "-1s", "1d", "1 s", "0s", "99999999999s", "1.5s"}) {
    EXPECT_THROW(ParseDuration(bad), Failure) << bad;
  }
}

TEST(OptionsTest, EnvTakesTheLaunchersValue) {
  setenv("SMOLVM_TEST_VALUE", "seven", 1);
  EXPECT_EQ(ParseEnv("SMOLVM_TEST_VALUE"), "SMOLVM_TEST_VALUE=seven");
  EXPECT_EQ(ParseEnv("A="), "A=");
  EXPECT_THROW(ParseEnv("SMOLVM_TEST_UNSET"), Failure);
  EXPECT_THROW(ParseEnv("=x"), Failure);
}

TEST(EnvironmentTest, LaterOnesWin) {
  const auto list = BuildEnvironment({"PATH=/image", "A=image"}, {"A=own", "B=own"}, "");
  EXPECT_THAT(list, ElementsAre("PATH=/image", "A=own", "B=own"));
}

TEST(EnvironmentTest, CudaComesFirstOnTheLoaderPath) {
  const auto list = BuildEnvironment({"PATH=/p", "LD_LIBRARY_PATH=/image"}, {}, "vsock:2:7000");
  EXPECT_THAT(list, ElementsAre("PATH=/p", "LD_LIBRARY_PATH=/opt/smolvm-cuda:/image",
                                "SMOLVM_CUDA_ENDPOINT=vsock:2:7000", "SMOLVM_CUDA_LOG=error",
                                "SMOLVM_CUDA_LOG_FILE=/run/smolvm-cuda.log"));
}

}  // namespace
}  // namespace smolvm::machine
