#include "host-daemon/server/options.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace smolvm::server {
namespace {

int Parse(std::vector<std::string> words, Options* options) {
  words.insert(words.begin(), "smolvm-cuda-daemon");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  return ParseOptions(static_cast<int>(argv.size()), argv.data(), options);
}

bool Has(const Options& options, const std::string& argument) {
  return std::count(options.worker_arguments.begin(), options.worker_arguments.end(), argument) ==
         1;
}

TEST(OptionsTest, Sizes) {
  const std::pair<const char*, uint64_t> good[] = {
      {"1", 1 << 20}, {"512M", 512 << 20}, {"2g", 2ull << 30}, {"3K", 3072}, {"1T", 1ull << 40}};
  for (const auto& [text, bytes] : good) {
    uint64_t got = 0;
    EXPECT_TRUE(ParseSize(text, &got)) << text;
    EXPECT_EQ(got, bytes) << text;
  }
  for (const char* text : {"", "M", "-1", "1MB", "1.5G", "99999999999999999999", "9999999999T"}) {
    uint64_t got = 0;
    EXPECT_FALSE(ParseSize(text, &got)) << text;
  }
}

TEST(OptionsTest, EverythingReachesTheWorker) {
  Options options;
  ASSERT_EQ(Parse({"--listen",
                   "unix:/a",
                   "--listen",
                   "vsock:7001",
                   "--backend",
                   "driver",
                   "--driver",
                   "/lib/x.so",
                   "--gpus",
                   "0,2",
                   "--memory-limit",
                   "2G",
                   "--emulation-memory",
                   "512",
                   "--emulation-compute-capability",
                   "7.5",
                   "--emulation-cache",
                   "off",
                   "--kernel-timeout",
                   "1.5",
                   "--log-level",
                   "debug"},
                  &options),
            -1);
  EXPECT_EQ(options.listen.size(), 2u);
  EXPECT_EQ(options.log_level, log::Level::kDebug);
  for (const char* argument :
       {"--backend=driver", "--driver=/lib/x.so", "--gpus=0,2", "--memory-limit=2147483648",
        "--emulation-memory=524288K", "--emulation-compute-capability=7.5", "--emulation-cache=off",
        "--kernel-timeout-ms=1500", "--log-level=debug"}) {
    EXPECT_TRUE(Has(options, argument)) << argument;
  }
}

TEST(OptionsTest, GpusAreASelector) {
  const std::pair<const char*, const char*> good[] = {
      {"all", ""},           {"nvidia", ""},       {"0,2", "0,2"},
      {"2, 0,2", "0,2"},     {"nvidia:1", "1"},    {"NVIDIA:3,nvidia:1", "1,3"},
      {"nvidia:1,0", "0,1"}, {"nvidia:0,all", ""}, {"0,", "0"}};
  for (const auto& [text, worker] : good) {
    Options options;
    ASSERT_EQ(Parse({"--listen", "unix:/a", "--gpus", text}, &options), -1) << text;
    const bool any =
        std::any_of(options.worker_arguments.begin(), options.worker_arguments.end(),
                    [](const std::string& argument) { return argument.starts_with("--gpus"); });
    EXPECT_EQ(any, *worker != '\0') << text;
    if (any) EXPECT_TRUE(Has(options, std::string("--gpus=") + worker)) << text;
  }
  for (const char* text : {"all", "0", "nvidia:0"}) {
    Options options;
    EXPECT_EQ(Parse({"--listen", "unix:/a", "--backend", "emulation", "--gpus", text}, &options),
              -1);
  }
}

TEST(OptionsTest, PeersHaveLimits) {
  Options options;
  ASSERT_EQ(Parse({"--listen", "vsock:7001", "--max-sessions", "64"}, &options), -1);
  EXPECT_EQ(SessionsForAPeer(options), 48u);
  EXPECT_TRUE(MayConnect(options, 3));
  Options small;
  ASSERT_EQ(Parse({"--listen", "unix:/a", "--max-sessions", "2"}, &small), -1);
  EXPECT_EQ(SessionsForAPeer(small), 2u);
  Options one;
  ASSERT_EQ(Parse({"--listen", "vsock:7001", "--peer-cid", "7", "--peer-cid", "9",
                   "--max-sessions-per-peer", "5"},
                  &one),
            -1);
  EXPECT_EQ(SessionsForAPeer(one), 5u);
  EXPECT_TRUE(MayConnect(one, 7));
  EXPECT_TRUE(MayConnect(one, 9));
  EXPECT_FALSE(MayConnect(one, 8));
  EXPECT_FALSE(MayConnect(one, 2));
  EXPECT_TRUE(MayConnect(one, std::nullopt));  // not by vsock
}

TEST(OptionsTest, AnUnknownOptionIsNamed) {
  Options options;
  testing::internal::CaptureStderr();
  EXPECT_EQ(Parse({"--bogus"}, &options), 2);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("--bogus"), std::string::npos);
}

TEST(OptionsTest, WhatMakesNoSenseIsRefused) {
  const std::vector<std::vector<std::string>> bad = {
      {},
      {"--listen"},
      {"--listen", "tcp:1"},
      {"--listen", "unix:/a", "--no-such-option"},
      {"--listen", "unix:/a", "stray"},
      {"--listen", "unix:/a", "--backend", "magic"},
      {"--listen", "unix:/a", "--gpus", "first"},
      {"--listen", "unix:/a", "--gpus", ""},
      {"--listen", "unix:/a", "--gpus", "amd"},
      {"--listen", "unix:/a", "--gpus", "nvidia:x"},
      {"--listen", "unix:/a", "--backend", "emulation", "--gpus", "1"},
      {"--listen", "unix:/a", "--backend", "emulation", "--gpus", "0,1"},
      {"--listen", "unix:/a", "--emulation-memory", "0"},
      {"--listen", "unix:/a", "--emulation-memory", "4K"},
      {"--listen", "unix:/a", "--emulation-memory", "17T"},
      {"--listen", "unix:/a", "--memory-limit", "much"},
      {"--listen", "unix:/a", "--memory-limit", "0"},
      {"--listen", "unix:/a", "--max-sessions", "0"},
      {"--listen", "unix:/a", "--emulation-compute-capability", "nine"},
      {"--listen", "unix:/a", "--kernel-timeout", "-1"},
      {"--listen", "unix:/a", "--log-level", "loud"},
  };
  for (const auto& words : bad) {
    Options options;
    testing::internal::CaptureStderr();
    EXPECT_EQ(Parse(words, &options), 2);
    const std::string text = testing::internal::GetCapturedStderr();
    EXPECT_EQ(text.find("smolvm-cuda-daemon: "), 0u) << text;
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  }
}

}  // namespace
}  // namespace smolvm::server
