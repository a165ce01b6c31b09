// Linking. What belongs to a link's state belongs to it here too: the image that cuLinkComplete
// returns, and the program's log buffers, which each call of the link fills further.
#include <algorithm>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "guest-shim/libcuda/entry/entry.h"
#include "guest-shim/libcuda/entry/image_file.h"
#include "guest-shim/libcuda/entry/jit_options.h"
#include "protocol/api/attributes.h"
#include "protocol/api/guest_manual.h"
#include "protocol/api/link.wire.h"

namespace smolvm::guest {
namespace {

struct Link {
  std::mutex mutex;  // a state is used by one thread at a time
  JitOptions options;
  std::vector<char> image;

  // What a call of the link has brought; its refusal is logged.
  template <typename Reply>
  void Store(const Reply& reply) const {
    options.Store(reply.info_log, reply.error_log, reply.wall_time_ms);
    if (reply.status != CUDA_SUCCESS)
      JitOptions::LogRefusal("link_refused", reply.status, reply.error_log);
  }
};

// Never destroyed: programs call the driver from atexit handlers.
std::mutex& LinksMutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}
std::unordered_map<uint64_t, std::shared_ptr<Link>>& Links() {
  static auto* links = new std::unordered_map<uint64_t, std::shared_ptr<Link>>;
  return *links;
}

std::shared_ptr<Link> FindLink(CUlinkState state) {
  const std::lock_guard lock(LinksMutex());
  const auto found = Links().find(reinterpret_cast<uint64_t>(state));
  return found == Links().end() ? nullptr : found->second;
}

// cuLinkAddData: an input's options are compiler options.
CUresult CheckInputOptions(unsigned count, const CUjit_option* keys) {
  for (unsigned i = 0; i < count; ++i) {
    if (api::JitOptionIsOfAWholeLink(keys[i])) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult AddData(uint32_t variant, CUlinkState state, CUjitInputType type, const void* data,
                 size_t size, const char* name, unsigned count, CUjit_option* keys, void** values) {
  if (!data || size == 0) return CUDA_ERROR_INVALID_VALUE;
  if (size > kMaxImageBytes) return CUDA_ERROR_INVALID_IMAGE;
  const auto link = FindLink(state);
  if (!link) return CUDA_ERROR_INVALID_HANDLE;
  JitOptions options;
  if (const CUresult result = options.Read(count, keys, values)) return result;
  if (const CUresult result = CheckInputOptions(count, keys)) return result;
  const std::lock_guard lock(link->mutex);
  const iovec part{const_cast<void*>(data), size};
  const api::LinkAddDataV2Request request{reinterpret_cast<uint64_t>(state),
                                          static_cast<uint32_t>(type),
                                          name ? name : "",
                                          name != nullptr,
                                          options.keys,
                                          options.values};
  api::LinkAddDataV2Reply reply;
  if (const CUresult result =
          Ask(api::id::cuLinkAddData_v2, variant, request, &reply, Bulk(&part, 1)))
    return result;
  link->Store(reply);
  return static_cast<CUresult>(reply.status);
}

// The image that the host has made, `bytes` long.
CUresult Fetch(uint32_t variant, uint64_t state, uint64_t bytes, std::vector<char>* image) {
  if (bytes == 0 || bytes > kMaxImageBytes) return BadReply();
  image->resize(bytes);
  Reply reply{{}, image->data(), bytes, 0};
  const api::LinkCompleteRequest request{state, bytes};
  if (const CUresult result =
          Exchange(api::id::cuLinkComplete, variant, EncodeArgs(request), {}, &reply))
    return result;
  return reply.received == bytes ? CUDA_SUCCESS : BadReply();
}

}  // namespace

namespace manual {

CUresult cuLinkCreate_v2(uint32_t variant, unsigned int numOptions, CUjit_option* options,
                         void** optionValues, CUlinkState* stateOut) {
  if (!stateOut) return CUDA_ERROR_INVALID_VALUE;
  auto link = std::make_shared<Link>();
  if (const CUresult result = link->options.Read(numOptions, options, optionValues)) return result;
  link->options.WantErrorLog();
  api::LinkCreateV2Reply reply;
  const api::LinkCreateV2Request request{link->options.keys, link->options.values};
  if (const CUresult result = Ask(api::id::cuLinkCreate_v2, variant, request, &reply))
    return result;
  const std::lock_guard lock(LinksMutex());
  Links()[reply.stateOut] = std::move(link);
  *stateOut = reinterpret_cast<CUlinkState>(reply.stateOut);
  return CUDA_SUCCESS;
}

CUresult cuLinkAddData_v2(uint32_t variant, CUlinkState state, CUjitInputType type, void* data,
                          size_t size, const char* name, unsigned int numOptions,
                          CUjit_option* options, void** optionValues) {
  return AddData(variant, state, type, data, size, name, numOptions, options, optionValues);
}

CUresult cuLinkAddFile_v2(uint32_t variant, CUlinkState state, CUjitInputType type,
                          const char* path, unsigned int numOptions, CUjit_option* options,
                          void** optionValues) {
  if (!path) return CUDA_ERROR_INVALID_VALUE;
  if (!FindLink(state)) return CUDA_ERROR_INVALID_HANDLE;
  std::vector<char> bytes;
  if (const CUresult result = ReadImageFile(path, &bytes)) return result;
  // The NUL behind the file ends PTX, and is no part of anything else.
  const size_t size = bytes.size() - (type == CU_JIT_INPUT_PTX ? 0 : 1);
  if (size == 0) return CUDA_ERROR_INVALID_IMAGE;
  return AddData(variant, state, type, bytes.data(), size, path, numOptions, options, optionValues);
}

CUresult cuLinkComplete(uint32_t variant, CUlinkState state, void** cubinOut, size_t* sizeOut) {
  if (!cubinOut) return CUDA_ERROR_INVALID_VALUE;
  const auto link = FindLink(state);
  if (!link) return CUDA_ERROR_INVALID_HANDLE;
  const std::lock_guard lock(link->mutex);
  api::LinkCompleteReply reply;
  const api::LinkCompleteRequest request{reinterpret_cast<uint64_t>(state), 0};
  if (const CUresult result = Ask(api::id::cuLinkComplete, variant, request, &reply)) return result;
  link->Store(reply);
  if (reply.status != CUDA_SUCCESS) return static_cast<CUresult>(reply.status);
  // The same image again stays where it is: the program may hold its address.
  std::vector<char> image;
  if (const CUresult result = Fetch(variant, request.state, reply.image_bytes, &image))
    return result;
  if (link->image != image) link->image.swap(image);
  *cubinOut = link->image.data();
  if (sizeOut) *sizeOut = link->image.size();
  return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(uint32_t variant, CUlinkState state) {
  const auto link = FindLink(state);
  if (!link) return CUDA_ERROR_INVALID_HANDLE;
  const std::lock_guard lock(link->mutex);
  const api::LinkDestroyRequest request{reinterpret_cast<uint64_t>(state)};
  api::None none;
  if (const CUresult result = Ask(api::id::cuLinkDestroy, variant, request, &none)) return result;
  const std::lock_guard links_lock(LinksMutex());
  Links().erase(request.state);
  return CUDA_SUCCESS;
}

}  // namespace manual
}  // namespace smolvm::guest
