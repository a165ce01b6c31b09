#include "machine/launch/environment.h"

#include "machine/wire/messages.h"

namespace smolvm::machine {
namespace {

constexpr char kCudaFolder[] = "/opt/smolvm-cuda";

// Sets or replaces the entry with the same key.
void Set(std::vector<std::string>* list, const std::string& entry) {
  const std::string key = entry.substr(0, entry.find('=') + 1);
  for (std::string& item : *list) {
    if (item.rfind(key, 0) == 0) {
      item = entry;
      return;
    }
  }
  list->push_back(entry);
}

std::string Value(const std::vector<std::string>& list, const std::string& key) {
  for (const std::string& item : list) {
    if (item.rfind(key + "=", 0) == 0) return item.substr(key.size() + 1);
  }
  return {};
}

}  // namespace

std::vector<std::string> MergeEnvironment(std::vector<std::string> base,
                                          const std::vector<std::string>& own) {
  for (const std::string& entry : own) Set(&base, entry);
  return base;
}

std::vector<std::string> BuildEnvironment(const std::vector<std::string>& image,
                                          const std::vector<std::string>& own,
                                          const std::string& cuda_endpoint) {
  std::vector<std::string> list = {
      "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"};
  for (const std::string& entry : image) Set(&list, entry);
  if (!cuda_endpoint.empty()) {
    Set(&list, "SMOLVM_CUDA_ENDPOINT=" + cuda_endpoint);
    // The agent looks there for what a program should be told when it has ended.
    Set(&list, "SMOLVM_CUDA_LOG=error");
    Set(&list, std::string("SMOLVM_CUDA_LOG_FILE=") + kGuestCudaLog);
  }
  list = MergeEnvironment(std::move(list), own);
  if (!cuda_endpoint.empty()) {
    // In front of what image and user name, so that a libcuda of the image's own does not win.
    const std::string path = Value(list, "LD_LIBRARY_PATH");
    Set(&list, std::string("LD_LIBRARY_PATH=") + kCudaFolder + (path.empty() ? "" : ":" + path));
  }
  return list;
}

}  // namespace smolvm::machine
