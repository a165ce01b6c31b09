// Linking device code. The inputs come from the guest and may be anything.
#include <string>
#include <vector>

#include "host-daemon/dispatch/dispatcher.h"
#include "host-daemon/dispatch/read_image.h"
#include "protocol/api/host_manual.h"
#include "protocol/image/fatbin.h"
#include "protocol/image/image.h"

namespace smolvm::dispatch {
namespace {

// Of an input, for the driver's messages.
constexpr size_t kMaxNameBytes = 4096;

// The driver is told an input's length, but not to distrust the lengths inside it. A wrapper has
// addresses of the guest's, and is no input here. Archives and host objects are the driver's to
// check, as files of the user's are anywhere.
bool IsWhole(CUjitInputType type, const std::vector<std::byte>& bytes) {
  switch (type) {
    case CU_JIT_INPUT_CUBIN: {
      const image::Image measured = image::MeasureImage(bytes.data(), bytes.size());
      return measured.kind == image::Kind::kElf;
    }
    case CU_JIT_INPUT_FATBINARY:
      return image::IsWholeContainer(bytes);
    default:
      return true;
  }
}

}  // namespace

namespace manual {

uint32_t cuLinkCreate_v2(Dispatcher& d, session::Call& call, const api::LinkCreateV2Request& in,
                         api::LinkCreateV2Reply* out) {
  if (!d.driver().cuLinkCreate_v2 || !d.driver().cuLinkDestroy)
    return d.NotInDriver("cuLinkCreate_v2");
  if (!d.handles().HasRoom() || !d.links().HasRoom()) return CUDA_ERROR_OUT_OF_MEMORY;
  // The driver keeps the arrays, so they are made where they will stay.
  auto options = std::make_unique<JitOptions>();
  if (!options->Read(in.option_keys, in.option_values)) return session::Handler::kMalformed;
  call.AboutToBlock();
  CUlinkState state = nullptr;
  if (const CUresult result =
          d.driver().cuLinkCreate_v2(options->count(), options->keys(), options->values(), &state))
    return result;
  out->stateOut = d.Mint(state);
  d.links().Add(out->stateOut, std::make_shared<LinkInProgress>(state, std::move(options)));
  return CUDA_SUCCESS;
}

uint32_t cuLinkAddData_v2(Dispatcher& d, session::Call& call, const api::LinkAddDataV2Request& in,
                          api::LinkAddDataV2Reply* out) {
  if (!d.driver().cuLinkAddData_v2) return d.NotInDriver("cuLinkAddData_v2");
  const auto link = d.links().Find(in.state);
  if (!link) return CUDA_ERROR_INVALID_HANDLE;
  if (in.name.size() > kMaxNameBytes) return CUDA_ERROR_INVALID_VALUE;
  JitOptions options;
  if (!options.Read(in.option_keys, in.option_values)) return session::Handler::kMalformed;
  const auto type = static_cast<CUjitInputType>(in.type);
  if (call.bulk_left() == 0) return CUDA_ERROR_INVALID_VALUE;
  // Counted before a byte is kept; what a driver then refuses stays counted, until the link ends.
  if (!d.links().Count(*link, call.bulk_left())) return CUDA_ERROR_OUT_OF_MEMORY;
  std::vector<std::byte> bytes;
  if (!ReadImage(call, &bytes)) return CUDA_ERROR_UNKNOWN;
  if (!IsWhole(type, bytes)) return CUDA_ERROR_INVALID_IMAGE;
  const size_t size = bytes.size();
  bytes.push_back(std::byte{0});  // for PTX whose NUL is not there
  call.AboutToBlock();
  const std::lock_guard lock(link->mutex);
  if (link->destroyed) return CUDA_ERROR_INVALID_HANDLE;
  out->status = d.driver().cuLinkAddData_v2(link->state, type, bytes.data(), size,
                                            in.has_name ? in.name.c_str() : nullptr,
                                            options.count(), options.keys(), options.values());
  link->options->Report(out);
  return CUDA_SUCCESS;
}

static uint32_t SendImage(session::Call& call, const LinkInProgress& link, uint64_t wanted) {
  if (link.image == nullptr || wanted != link.image_bytes) return CUDA_ERROR_INVALID_VALUE;
  return call.SendBulk(link.image, wanted) ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

uint32_t cuLinkComplete(Dispatcher& d, session::Call& call, const api::LinkCompleteRequest& in,
                        api::LinkCompleteReply* out) {
  if (!d.driver().cuLinkComplete) return d.NotInDriver("cuLinkComplete");
  const auto link = d.links().Find(in.state);
  if (!link) return CUDA_ERROR_INVALID_HANDLE;
  call.AboutToBlock();
  const std::lock_guard lock(link->mutex);
  if (link->destroyed) return CUDA_ERROR_INVALID_HANDLE;
  if (in.image_bytes != 0) return SendImage(call, *link, in.image_bytes);
  void* image = nullptr;
  size_t bytes = 0;
  out->status = d.driver().cuLinkComplete(link->state, &image, &bytes);
  link->options->Report(out);
  if (out->status != CUDA_SUCCESS) return CUDA_SUCCESS;
  link->image = image;
  link->image_bytes = out->image_bytes = image == nullptr ? 0 : bytes;
  return CUDA_SUCCESS;
}

uint32_t cuLinkDestroy(Dispatcher& d, session::Call& call, const api::LinkDestroyRequest& in,
                       api::None*) {
  const auto link = d.links().Find(in.state);
  if (!link) return CUDA_ERROR_INVALID_HANDLE;
  call.AboutToBlock();
  const std::lock_guard lock(link->mutex);
  if (link->destroyed) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult result = d.driver().cuLinkDestroy(link->state)) return result;
  link->destroyed = true;
  d.links().Remove(in.state);
  d.handles().Remove(in.state);
  return CUDA_SUCCESS;
}

}  // namespace manual
}  // namespace smolvm::dispatch
