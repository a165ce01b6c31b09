// Linking PTX at run time.
#include <chrono>

#include "host-daemon/emulation/api/api.h"
#include "host-daemon/emulation/api/image_file.h"
#include "protocol/api/attributes.h"

namespace smolvm::emulation {

template <typename Step>
CUresult LinkState::Timed(Step&& step) {
  const std::lock_guard lock(mutex_);
  const auto begin = std::chrono::steady_clock::now();
  const CUresult result = step();
  const std::chrono::duration<float, std::milli> took = std::chrono::steady_clock::now() - begin;
  milliseconds_ += took.count();
  options_.Report(log_, milliseconds_);
  if (result != CUDA_SUCCESS) LogRefusal("link_refused", result, log_.error);
  return result;
}

CUresult LinkState::Add(CUjitInputType type, std::span<const std::byte> data,
                        std::string_view name) {
  return Timed([&] { return linker_->Add(type, data, name, &log_); });
}

CUresult LinkState::Complete(std::span<const std::byte>* image) {
  return Timed([&] {
    std::vector<std::byte> made;
    const CUresult result = linker_->Complete(&log_, &made);
    if (result != CUDA_SUCCESS) return result;
    if (made != image_) image_ = std::move(made);  // the same image stays where it is
    *image = image_;
    return CUDA_SUCCESS;
  });
}

namespace {

CUresult FindLink(CUlinkState handle, std::shared_ptr<LinkState>* link) {
  *link = handle == nullptr ? nullptr : TheDriver().links.Find(handle);
  return *link != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

// An input has compiler options only, of which none changes what this device makes.
CUresult CheckInputOptions(unsigned count, const CUjit_option* options, void** values) {
  JitOptions jit;
  SMOLVM_RETURN_IF_ERROR(jit.Parse(count, options, values));
  for (unsigned i = 0; i < count; ++i) {
    if (api::JitOptionIsOfAWholeLink(options[i])) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

}  // namespace

SMOLVM_API cuLinkCreate_v2(unsigned int count, CUjit_option* options, void** values,
                           CUlinkState* state) {
  SMOLVM_ENTER();
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_CURRENT_CONTEXT(context);
  JitOptions jit;
  SMOLVM_RETURN_IF_ERROR(jit.Parse(count, options, values));
  LoadOptions load = jit.load();
  load.compute_capability = TheDriver().settings.compute_capability;
  *state = TheDriver().links.Add(std::make_shared<LinkState>(jit, Linker::Make(load)));
  return CUDA_SUCCESS;
}

SMOLVM_API cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void* data, size_t size,
                            const char* name, unsigned int count, CUjit_option* options,
                            void** values) {
  SMOLVM_ENTER();
  if (data == nullptr || size == 0) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<LinkState> link;
  SMOLVM_RETURN_IF_ERROR(FindLink(state, &link));
  SMOLVM_RETURN_IF_ERROR(CheckInputOptions(count, options, values));
  return link->Add(type, {static_cast<const std::byte*>(data), size}, name == nullptr ? "" : name);
}

SMOLVM_API cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char* path,
                            unsigned int count, CUjit_option* options, void** values) {
  SMOLVM_ENTER();
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<LinkState> link;
  SMOLVM_RETURN_IF_ERROR(FindLink(state, &link));
  SMOLVM_RETURN_IF_ERROR(CheckInputOptions(count, options, values));
  std::vector<std::byte> bytes;
  SMOLVM_RETURN_IF_ERROR(ReadWholeFile(path, &bytes));
  return link->Add(type, bytes, path);
}

SMOLVM_API cuLinkComplete(CUlinkState state, void** image, size_t* bytes) {
  SMOLVM_ENTER();
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<LinkState> link;
  SMOLVM_RETURN_IF_ERROR(FindLink(state, &link));
  std::span<const std::byte> made;
  SMOLVM_RETURN_IF_ERROR(link->Complete(&made));
  *image = const_cast<std::byte*>(made.data());
  if (bytes != nullptr) *bytes = made.size();
  return CUDA_SUCCESS;
}

SMOLVM_API cuLinkDestroy(CUlinkState state) {
  SMOLVM_ENTER();
  if (state == nullptr || TheDriver().links.Remove(state) == nullptr)
    return CUDA_ERROR_INVALID_HANDLE;
  return CUDA_SUCCESS;
}

// The forms of before CUDA 6.5, which differ in a type's name only.
SMOLVM_API cuLinkCreate(unsigned int count, CUjit_option* options, void** values,
                        CUlinkState* state) {
  return cuLinkCreate_v2(count, options, values, state);
}

SMOLVM_API cuLinkAddData(CUlinkState state, CUjitInputType type, void* data, size_t size,
                         const char* name, unsigned int count, CUjit_option* options,
                         void** values) {
  return cuLinkAddData_v2(state, type, data, size, name, count, options, values);
}

SMOLVM_API cuLinkAddFile(CUlinkState state, CUjitInputType type, const char* path,
                         unsigned int count, CUjit_option* options, void** values) {
  return cuLinkAddFile_v2(state, type, path, count, options, values);
}

}  // namespace smolvm::emulation
