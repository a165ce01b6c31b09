// The library itself: what it needs, what it exports, and that loading it does nothing.
#include <gmock/gmock.h>

#include <regex>
#include <set>

#include "tests/conformance/remoting/fixture.h"

namespace smolvm::remoting {
namespace {

using ::testing::HasSubstr;

std::string Output(const std::vector<std::string>& arguments,
                   const std::vector<std::string>& environment = {}) {
  Process process(arguments, environment);
  EXPECT_EQ(process.Wait(), 0) << arguments[0] << ":\n" << process.output();
  return process.output();
}

class Library : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "a sanitizer's build needs the sanitizer's library";
  }
};

TEST_F(Library, NeedsNothingButGlibc) {
  const std::string dynamic = Output({"readelf", "-dW", SMOLVM_GUEST_LIBRARY});
  const std::regex needed("NEEDED.*\\[(.*)\\]");
  for (std::sregex_iterator match(dynamic.begin(), dynamic.end(), needed), end; match != end;
       ++match) {
    const std::string name = (*match)[1];
    EXPECT_TRUE(std::regex_match(
        name, std::regex("lib(c|m|dl|pthread|rt)\\.so\\.[0-9]+|ld-linux.*\\.so\\.[0-9]+")))
        << name;
  }
  EXPECT_THAT(dynamic, HasSubstr("[libcuda.so.1]"));
}

TEST_F(Library, AsksForNoNewerGlibcThan228) {
  const std::string versions = Output({"readelf", "-VW", SMOLVM_GUEST_LIBRARY});
  const std::regex version("Name: ([A-Z]+)_([0-9]+)\\.([0-9]+)");
  int seen = 0;
  for (std::sregex_iterator match(versions.begin(), versions.end(), version), end; match != end;
       ++match, ++seen) {
    EXPECT_EQ((*match)[1], "GLIBC") << match->str();
    EXPECT_EQ((*match)[2], "2") << match->str();
    EXPECT_LE(std::stoi((*match)[3]), 28) << match->str();
  }
  EXPECT_GT(seen, 0);
}

TEST_F(Library, LeavesNoSymbolUndefined) {
  EXPECT_THAT(Output({"ldd", "-r", SMOLVM_GUEST_LIBRARY}), ::testing::Not(HasSubstr("undefined")));
}

TEST_F(Library, PreloadedIntoAStrangerItDoesNothing) {
  const std::string preload = "LD_PRELOAD=" SMOLVM_GUEST_LIBRARY;
  EXPECT_EQ(Output({"/bin/true"}, {preload, "SMOLVM_CUDA_LOG=debug"}), "");
  EXPECT_EQ(Output({"/bin/echo", "hello"}, {preload, "SMOLVM_CUDA_LOG=debug"}), "hello\n");
}

TEST_F(Library, EveryNameIsFound) {
  EXPECT_THAT(Output({SMOLVM_REMOTING_LOADER, "exports", SMOLVM_GUEST_LIBRARY, SMOLVM_EXPORTS_TXT}),
              HasSubstr("missing=0"));
}

TEST_F(Library, CanBeClosedUnused) {
  EXPECT_EQ(Output({SMOLVM_REMOTING_LOADER, "load", SMOLVM_GUEST_LIBRARY}), "");
}

class LibraryInUse : public Remoting {};

TEST_F(LibraryInUse, CanBeClosedAndLoadedAnew) {
  EXPECT_EQ(Output({SMOLVM_REMOTING_LOADER, "use", SMOLVM_GUEST_LIBRARY},
                   {"SMOLVM_CUDA_ENDPOINT=unix:" + daemon().socket()}),
            "");
}

}  // namespace
}  // namespace smolvm::remoting
