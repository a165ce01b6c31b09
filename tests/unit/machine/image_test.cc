#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "machine/image/source.h"
#include "machine/image/store.h"
#include "machine/image/tree.h"
#include "machine/image/unpack.h"
#include "machine/util/failure.h"
#include "machine/util/files.h"
#include "machine/util/tool.h"

namespace smolvm::machine {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class ImageTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text = "x") {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  std::string WhyNot(const std::string& argument) {
    try {
      FindImage(argument);
    } catch (const Failure& failure) {
      return failure.what();
    }
    return "it was accepted";
  }

  const TempFolder folder_{fs::temp_directory_path() / "smolvm-image-test"};
  const fs::path root_ = folder_.path();
};

TEST_F(ImageTest, References) {
  EXPECT_EQ(FindImage("python:3.12-slim").kind, ImageKind::kRegistry);
  EXPECT_EQ(FindImage("mirror.gcr.io/library/python:3.12-slim").kind, ImageKind::kRegistry);
  EXPECT_EQ(FindImage("127.0.0.1:5000/x@sha256:ab").kind, ImageKind::kRegistry);
  EXPECT_EQ(FindImage("debian:bookworm").kind, ImageKind::kRegistry);
  EXPECT_EQ(FindImage("debian").suite, "bookworm");
  EXPECT_EQ(FindImage("debian/bullseye").suite, "bullseye");
  EXPECT_THAT(WhyNot("debian/../x"), HasSubstr("suite"));
  EXPECT_THAT(WhyNot("-oops"), HasSubstr("not an image"));
  EXPECT_THAT(WhyNot("a b"), HasSubstr("not an image"));
}

TEST_F(ImageTest, PathsAreToldByWhatIsInThem) {
  Write("tree/bin/sh");
  Write("oci/oci-layout");
  Write("oci/index.json");
  fs::create_directories(root_ / "empty");
  EXPECT_EQ(FindImage(root_ / "tree").kind, ImageKind::kFolder);
  EXPECT_EQ(FindImage(root_ / "oci").kind, ImageKind::kOciFolder);
  EXPECT_THAT(WhyNot(root_ / "empty"), HasSubstr("empty"));
  EXPECT_THAT(WhyNot(root_ / "absent"), HasSubstr("No such file"));
  EXPECT_THAT(WhyNot("/dev/null"), HasSubstr("neither"));
  Write("junk.tar", "not a tar file");
  EXPECT_THAT(WhyNot(root_ / "junk.tar"), HasSubstr("This does not look like a tar archive"));
  for (const char* name : {"tree", "oci"}) {
    MustRun({"tar", "-cf", (root_ / name).string() + ".tar", "-C", (root_ / name).string(), "."},
            {.doing = "tar"});
  }
  EXPECT_EQ(FindImage(root_ / "tree.tar").kind, ImageKind::kTarball);
  EXPECT_EQ(FindImage(root_ / "oci.tar").kind, ImageKind::kOciArchive);
}

TEST_F(ImageTest, ArchiveKinds) {
  EXPECT_EQ(ArchiveKind({"blobs/", "index.json", "oci-layout"}), ImageKind::kOciArchive);
  // What `docker save` writes today is both.
  EXPECT_EQ(ArchiveKind({"index.json", "manifest.json", "oci-layout"}), ImageKind::kOciArchive);
  EXPECT_EQ(ArchiveKind({"abc.json", "manifest.json"}), ImageKind::kDockerArchive);
  EXPECT_EQ(ArchiveKind({"./bin/", "./etc/"}), ImageKind::kTarball);
}

// What an image names as its configuration is a blob of its own, never a file of the host.
TEST_F(ImageTest, ABlobIsBelowItsLayout) {
  const auto digest = [](const std::string& text) { return R"({"digest":")" + text + R"("})"; };
  const std::string good = "sha256:" + std::string(64, 'a');
  Write("layout/index.json", R"({"manifests":[)" + digest(good) + "]}");
  const std::string manifest = "layout/blobs/sha256/" + std::string(64, 'a');
  Write("layout/blobs/sha256/bb", R"({"config":{"User":"inside"}})");
  Write("elsewhere", R"({"config":{"User":"outside"}})");
  Write(manifest, R"({"config":)" + digest("sha256:bb") + "}");
  EXPECT_EQ(ReadImageConfig(root_ / "layout").user, "inside");
  for (const char* bad :
       {"../..:elsewhere", "..:../elsewhere", "sha256:../../../elsewhere",
        "sha256/../../..:elsewhere", ":elsewhere", "elsewhere", "..:..", "sha256:"}) {
    Write(manifest, R"({"config":)" + digest(bad) + "}");
    try {
      ADD_FAILURE() << bad << " led to " << ReadImageConfig(root_ / "layout").user;
    } catch (const Failure& failure) {
      EXPECT_THAT(failure.what(), HasSubstr("bad digest")) << bad;
    }
  }
}

TEST_F(ImageTest, LibcIsFoundWithinTheTree) {
  Write("glibc/usr/lib64/ld-linux-x86-64.so.2");
  fs::create_symlink("/usr/lib64", root_ / "glibc/lib64");  // absolute: the tree's, not the host's
  Write("musl/lib/ld-musl-x86_64.so.1");
  Write("none/bin/x");
  fs::create_directories(root_ / "trap");
  fs::create_symlink("/lib64", root_ / "trap/lib64");
  EXPECT_EQ(FindLibc(root_ / "glibc"), Libc::kGlibc);
  EXPECT_EQ(FindLibc(root_ / "musl"), Libc::kMusl);
  EXPECT_EQ(FindLibc(root_ / "none"), Libc::kNone);
  EXPECT_EQ(FindLibc(root_ / "trap"), Libc::kNone);
}

TEST_F(ImageTest, FingerprintsFollowChanges) {
  Write("tree/a", "one");
  const std::string before = FingerprintTree(root_ / "tree");
  EXPECT_EQ(FingerprintTree(root_ / "tree"), before);
  Write("tree/a", "other");
  EXPECT_NE(FingerprintTree(root_ / "tree"), before);
}

TEST_F(ImageTest, PullFailuresInOneLine) {
  const std::string rate = ExplainPullFailure("python:3.12-slim",
                                              "time=\"x\" level=info msg=\"a\"\n"
                                              "time=\"x\" level=fatal msg=\"reading manifest: "
                                              "toomanyrequests: You have \\\"reached\\\"\"\n");
  EXPECT_THAT(rate, HasSubstr("toomanyrequests: You have \"reached\""));
  EXPECT_THAT(rate, HasSubstr("mirror.gcr.io/library/python:3.12-slim"));
  EXPECT_THAT(rate, Not(HasSubstr("\n")));
  EXPECT_TRUE(MeansUnreachable("dial tcp: lookup x: no such host"));
  EXPECT_FALSE(MeansUnreachable("manifest unknown"));
}

TEST_F(ImageTest, AFolderIsMadeOnceAndDropped) {
  if (FindProgram("mkfs.erofs").empty()) GTEST_SKIP() << "skipped: mkfs.erofs is not installed";
  Write("tree/lib/ld-musl-x86_64.so.1");
  const fs::path cache = root_ / "cache";
  const Image first = EnsureImage(root_ / "tree", cache, Expansion::kDefaultLimit);
  EXPECT_EQ(first.libc, "musl");
  const auto written = fs::last_write_time(first.disk);
  const Image again = EnsureImage(root_ / "tree", cache, Expansion::kDefaultLimit);
  EXPECT_EQ(again.disk, first.disk);
  EXPECT_EQ(fs::last_write_time(again.disk), written);
  EXPECT_TRUE(fs::is_empty(cache / "tmp"));
  DropImage(first.disk, cache);
  EXPECT_FALSE(fs::exists(first.disk));
}

// Why an image that is larger than `limit` is refused; and that nothing of it is left.
class ExpansionTest : public ImageTest {
 protected:
  std::string WhyRefused(const fs::path& image, uint64_t limit) {
    const fs::path cache = root_ / "cache";
    std::string why;
    try {
      EnsureImage(image, cache, limit);
    } catch (const Failure& failure) {
      why = failure.what();
    }
    EXPECT_TRUE(fs::is_empty(cache / "tmp"));
    for (const auto& entry : fs::directory_iterator(cache / "images"))
      EXPECT_NE(entry.path().extension(), ".erofs");
    return why;
  }
};

// An attack's: 10 KiB that filled the disk of the cache.
TEST_F(ExpansionTest, ASparseFileCountsAsWhatItPretendsToBe) {
  Write("tree/file");
  fs::resize_file(root_ / "tree/file", uint64_t{8} << 30);
  const fs::path archive = root_ / "bomb.tar";
  ASSERT_EQ(
      RunTool({"tar", "-S", "-C", (root_ / "tree").string(), "-cf", archive.string(), "."}).status,
      0);
  ASSERT_LT(fs::file_size(archive), uint64_t{1} << 20);
  EXPECT_THAT(WhyRefused(archive, uint64_t{1} << 30),
              HasSubstr("come to 8.0 GiB, more than 1.0 GiB: --image-limit"));
  EXPECT_THAT(WhyRefused(root_ / "tree", uint64_t{1} << 30), HasSubstr("--image-limit"));
  // Larger than any disk.
  fs::resize_file(root_ / "tree/file", uint64_t{1} << 43);
  EXPECT_THAT(WhyRefused(root_ / "tree", UINT64_MAX), HasSubstr(" left"));
}

TEST_F(ExpansionTest, AnArchiveThatExpandsIsStopped) {
  Write("tree/zeroes", std::string(48 << 20, '\0'));
  const fs::path archive = root_ / "bomb.tar.gz";
  ASSERT_EQ(
      RunTool({"tar", "-z", "-C", (root_ / "tree").string(), "-cf", archive.string(), "."}).status,
      0);
  ASSERT_LT(fs::file_size(archive), uint64_t{1} << 20);
  EXPECT_THAT(WhyRefused(archive, uint64_t{16} << 20), HasSubstr("--image-limit"));
}

// One file by many names is one file.
TEST_F(ExpansionTest, HardLinksCountOnce) {
  Write("tree/file", std::string(1 << 20, 'x'));
  for (int k = 0; k < 100; ++k)
    fs::create_hard_link(root_ / "tree/file", root_ / ("tree/" + std::to_string(k)));
  const Expansion expansion(root_, 2 << 20);
  EXPECT_NO_THROW(expansion.CheckTree(root_ / "tree"));
  EXPECT_EQ(expansion.Problem(), "");
}

TEST_F(ExpansionTest, AToolIsEndedWhenThereIsAProblem) {
  const auto begin = std::chrono::steady_clock::now();
  try {
    MustRun({"sleep", "60"}, {.doing = "sleeping", .problem = [] { return "enough"; }});
    ADD_FAILURE() << "it was not stopped";
  } catch (const Failure& failure) {
    EXPECT_STREQ(failure.what(), "sleeping was stopped: enough");
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

}  // namespace
}  // namespace smolvm::machine
