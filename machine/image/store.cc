#include "machine/image/store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

#include "machine/image/tree.h"
#include "machine/util/files.h"
#include "machine/util/progress.h"
#include "protocol/base/sha256.h"

namespace smolvm::machine {
namespace {

namespace fs = std::filesystem;

// Part of every key; raised when images come to be made differently.
constexpr char kRecipe[] = "1";

class Store {
 public:
  Store(const fs::path& cache, uint64_t limit)
      : images_(cache / "images"),
        names_(cache / "images/names"),
        tmp_(cache / "tmp"),
        limit_(limit) {
    MakeFolders(names_);
    TempFolder::RemoveStale(tmp_);
    // One at a time: a second launcher finds what the first is making.
    lock_ = LockFile(images_ / "lock", true);
  }

  Image Ensure(const ImageSource& source) {
    switch (source.kind) {
      case ImageKind::kRegistry:
        return FromRegistry(source);
      case ImageKind::kDebian:
        return Cached(Key({"debian", source.suite}), [&](const fs::path& tree, const Expansion&) {
          MakeDebianTree(source.suite, tree);
        });
      case ImageKind::kFolder:
        return FromFolder(source);
      case ImageKind::kTarball:
        return Cached(FileKey(source.path), [&](const fs::path& tree, const Expansion& expansion) {
          UnpackTarball(source.path, tree, expansion);
        });
      default:
        return FromLayoutSource(source);
    }
  }

 private:
  using Maker = std::function<void(const fs::path& tree, const Expansion& expansion)>;

  // An ordinary user's images lack their files' owners, so root has others.
  static std::string Key(std::initializer_list<std::string> parts) {
    Sha256 hash;
    hash.AddField(kRecipe);
    hash.AddField(geteuid() == 0 ? "root" : "user");
    for (const std::string& part : parts) hash.AddField(part);
    return hash.Finish();
  }

  static std::string FileKey(const fs::path& path) {
    struct stat status;
    if (stat(path.c_str(), &status) != 0) Fail("cannot read {}: {}", path.string(), ErrnoText());
    return Key({"file", path.string(),
                fmt::format("{} {} {} {}.{}", status.st_dev, status.st_ino, status.st_size,
                            status.st_mtim.tv_sec, status.st_mtim.tv_nsec)});
  }

  std::optional<Image> Load(const std::string& key) const {
    const fs::path disk = images_ / (key + ".erofs"), about = images_ / (key + ".json");
    if (!fs::exists(disk) || !fs::exists(about)) return std::nullopt;
    try {
      const nlohmann::json json = nlohmann::json::parse(ReadFile(about));
      Image image{disk, {}, json.at("libc")};
      json.at("env").get_to(image.config.env);
      json.at("entrypoint").get_to(image.config.entrypoint);
      json.at("command").get_to(image.config.command);
      json.at("workdir").get_to(image.config.workdir);
      json.at("user").get_to(image.config.user);
      return image;
    } catch (const nlohmann::json::exception&) {
      return std::nullopt;  // made again
    }
  }

  Image Save(const std::string& key, const fs::path& tree, const ImageConfig& config,
             const fs::path& work, const Expansion& expansion) {
    const fs::path disk = work / "disk.erofs";
    const char* libc = LibcName(FindLibc(tree));
    WriteErofs(tree, disk, expansion);
    const nlohmann::json json = {{"env", config.env},         {"entrypoint", config.entrypoint},
                                 {"command", config.command}, {"workdir", config.workdir},
                                 {"user", config.user},       {"libc", libc}};
    WriteFileAtomically(images_ / (key + ".json"), json.dump());
    fs::rename(disk, images_ / (key + ".erofs"));
    return {images_ / (key + ".erofs"), config, libc};
  }

  Image Cached(const std::string& key, const Maker& make) {
    if (auto image = Load(key)) return *image;
    const TempFolder work(tmp_);
    const Expansion expansion(work.path(), limit_);
    make(work.path() / "tree", expansion);
    return Save(key, work.path() / "tree", {}, work.path(), expansion);
  }

  Image FromFolder(const ImageSource& source) {
    const std::string key = Key({"folder", source.path.string(), FingerprintTree(source.path)});
    if (auto image = Load(key)) return *image;
    const TempFolder work(tmp_);
    return Save(key, source.path, {}, work.path(), Expansion(work.path(), limit_));
  }

  // Copies to a layout, then unpacks unless the same content is there already.
  std::pair<std::string, Image> FromLayout(const ImageSource& source) {
    const TempFolder work(tmp_);
    const fs::path layout = work.path() / "layout";
    const Expansion expansion(work.path(), limit_);
    const std::string key = Key({"oci", CopyToLayout(source, layout, expansion)});
    if (auto image = Load(key)) return {key, *image};
    const ImageConfig config = ReadImageConfig(layout);
    UnpackLayout(layout, work.path() / "tree", expansion);
    return {key, Save(key, work.path() / "tree", config, work.path(), expansion)};
  }

  Image ByName(const fs::path& name, const ImageSource& source) {
    if (fs::exists(name)) {
      if (auto image = Load(ReadFile(name))) return *image;
    }
    auto [key, image] = FromLayout(source);
    WriteFileAtomically(name, key);
    return image;
  }

  Image FromRegistry(const ImageSource& source) {
    return ByName(names_ / Key({"registry", source.name}), source);
  }

  Image FromLayoutSource(const ImageSource& source) {
    const fs::path file =
        source.kind == ImageKind::kOciFolder ? source.path / "index.json" : source.path;
    return ByName(names_ / FileKey(file), source);
  }

  const fs::path images_, names_, tmp_;
  const uint64_t limit_;
  UniqueFd lock_;
};

}  // namespace

Image EnsureImage(const std::string& argument, const fs::path& cache, uint64_t limit) {
  ImageSource source = FindImage(argument.empty() ? kDefaultImage : argument);
  try {
    Store store(cache, limit);
    try {
      return store.Ensure(source);
    } catch (const RegistryUnreachable& unreachable) {
      if (!argument.empty()) throw;
      Say(std::string(unreachable.what()) + "; a Debian tree with python3 is used instead");
      return store.Ensure(FindImage("debian"));
    }
  } catch (const fs::filesystem_error& error) {
    Fail("the image {} cannot be made: {}", source.name, error.what());
  }
}

void DropImage(const fs::path& disk, const fs::path& cache) {
  const fs::path images = cache / "images";
  if (disk.parent_path() != images) return;
  fs::path about = disk;
  about.replace_extension(".json");
  unlink(disk.c_str());
  unlink(about.c_str());
  std::error_code error;
  for (fs::directory_iterator it(images / "names", error), end; !error && it != end;
       it.increment(error)) {
    if (ReadFile(it->path()) == disk.stem().string()) unlink(it->path().c_str());
  }
}

}  // namespace smolvm::machine
