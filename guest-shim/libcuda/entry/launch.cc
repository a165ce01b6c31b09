// Launches: parameters are packed here by the layout that came with the function; host functions
// stay here.
#include <vector>

#include "guest-shim/libcuda/client/callbacks.h"
#include "guest-shim/libcuda/entry/entry.h"
#include "guest-shim/libcuda/entry/layout.h"
#include "protocol/api/guest_manual.h"
#include "protocol/api/launch.wire.h"
#include "protocol/log/log.h"

namespace smolvm::guest {
namespace {

// CUDA programming guide, kernel parameters: the limit since CUDA 12.1.
constexpr size_t kMaxParamBytes = 32764;

// The `extra` list of cuLaunchKernel: a buffer and its size.
CUresult PackExtra(void** extra, std::vector<char>* packed) {
  const char* data = nullptr;
  const size_t* size = nullptr;
  for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
    if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      data = static_cast<const char*>(extra[1]);
    } else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      size = static_cast<const size_t*>(extra[1]);
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  if (!size || (*size > 0 && !data) || *size > kMaxParamBytes) return CUDA_ERROR_INVALID_VALUE;
  packed->assign(data, data + *size);
  return CUDA_SUCCESS;
}

CUresult Pack(CUfunction f, void** params, void** extra, std::vector<char>* packed) {
  packed->clear();
  if (params && extra) return CUDA_ERROR_INVALID_VALUE;
  if (extra) return PackExtra(extra, packed);
  CUresult result = CUDA_SUCCESS;
  const FunctionLayout* layout = LayoutOf(f, &result);
  if (!layout) return result;
  if (!layout->known) {
    log::Error(
        "event=no_layout hint=\"neither the host's driver (12.4 and later) nor the image tells the "
        "kernel's parameters; launch with `extra`\"");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (layout->sizes.empty()) return CUDA_SUCCESS;
  if (!params || layout->total > kMaxParamBytes) return CUDA_ERROR_INVALID_VALUE;
  packed->resize(layout->total);
  for (size_t i = 0; i < layout->sizes.size(); ++i) {
    if (!params[i]) return CUDA_ERROR_INVALID_VALUE;
    memcpy(packed->data() + layout->offsets[i], params[i], layout->sizes[i]);
  }
  return CUDA_SUCCESS;
}

// The grid's own limits; what a block may be is proved by a launch that was waited for.
bool GridFits(unsigned x, unsigned y, unsigned z) {
  return x > 0 && y > 0 && z > 0 && x <= 0x7FFFFFFF && y <= 0xFFFF && z <= 0xFFFF;
}

// A function's first launch of a shape waits; later ones of that shape need not.
template <typename Request>
CUresult Launch(uint32_t call_id, uint32_t variant, const Request& request, CUstream stream,
                Bulk bulk) {
  Session& session = TheSession();
  const LaunchShape shape{{request.blockDimX, request.blockDimY, request.blockDimZ},
                          request.sharedMemBytes,
                          call_id,
                          session.epoch()};
  if (ContextProved() && session.single_context() && KnownStream(stream) &&
      GridFits(request.gridDimX, request.gridDimY, request.gridDimZ) &&
      session.functions().Proved(request.f, shape)) {
    return Post(call_id, variant, request, bulk);
  }
  api::None none;
  const CUresult result = Ask(call_id, variant, request, &none, bulk);
  if (result == CUDA_SUCCESS) {
    ProveContext();
    // A cooperative grid must fit as a whole, which depends on its size: never let go unseen.
    if (call_id == api::id::cuLaunchKernel) session.functions().Prove(request.f, shape);
  }
  return result;
}

template <typename Request>
Request Describe(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                 unsigned bz, unsigned shared, CUstream stream) {
  Request request;
  request.f = reinterpret_cast<uint64_t>(f);
  request.gridDimX = gx, request.gridDimY = gy, request.gridDimZ = gz;
  request.blockDimX = bx, request.blockDimY = by, request.blockDimZ = bz;
  request.sharedMemBytes = shared;
  request.hStream = reinterpret_cast<uint64_t>(stream);
  return request;
}

std::vector<char>& PackBuffer() {
  thread_local std::vector<char> buffer;
  return buffer;
}

}  // namespace

namespace manual {

CUresult cuLaunchKernel(uint32_t variant, CUfunction f, unsigned int gridDimX,
                        unsigned int gridDimY, unsigned int gridDimZ, unsigned int blockDimX,
                        unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes,
                        CUstream hStream, void** kernelParams, void** extra) {
  if (!f) return CUDA_ERROR_INVALID_HANDLE;
  std::vector<char>& packed = PackBuffer();
  if (const CUresult result = Pack(f, kernelParams, extra, &packed)) return result;
  const auto request = Describe<api::LaunchKernelRequest>(
      f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream);
  const iovec part{packed.data(), packed.size()};
  return Launch(api::id::cuLaunchKernel, variant, request, hStream, Bulk(&part, 1));
}

CUresult cuLaunchCooperativeKernel(uint32_t variant, CUfunction f, unsigned int gridDimX,
                                   unsigned int gridDimY, unsigned int gridDimZ,
                                   unsigned int blockDimX, unsigned int blockDimY,
                                   unsigned int blockDimZ, unsigned int sharedMemBytes,
                                   CUstream hStream, void** kernelParams) {
  if (!f) return CUDA_ERROR_INVALID_HANDLE;
  std::vector<char>& packed = PackBuffer();
  if (const CUresult result = Pack(f, kernelParams, nullptr, &packed)) return result;
  const auto request = Describe<api::LaunchCooperativeKernelRequest>(
      f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream);
  const iovec part{packed.data(), packed.size()};
  return Launch(api::id::cuLaunchCooperativeKernel, variant, request, hStream, Bulk(&part, 1));
}

CUresult cuLaunchKernelEx(uint32_t variant, const CUlaunchConfig* config, CUfunction f,
                          void** kernelParams, void** extra) {
  if (!config || (config->numAttrs > 0 && !config->attrs)) return CUDA_ERROR_INVALID_VALUE;
  if (config->numAttrs == 0) {
    return cuLaunchKernel(variant, f, config->gridDimX, config->gridDimY, config->gridDimZ,
                          config->blockDimX, config->blockDimY, config->blockDimZ,
                          config->sharedMemBytes, config->hStream, kernelParams, extra);
  }
  if (!f) return CUDA_ERROR_INVALID_HANDLE;
  std::vector<char>& packed = PackBuffer();
  if (const CUresult result = Pack(f, kernelParams, extra, &packed)) return result;
  auto request = Describe<api::LaunchKernelExRequest>(
      f, config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX, config->blockDimY,
      config->blockDimZ, config->sharedMemBytes, config->hStream);
  request.attributes.assign(reinterpret_cast<const char*>(config->attrs),
                            config->numAttrs * sizeof *config->attrs);
  const iovec part{packed.data(), packed.size()};
  api::None none;
  return Ask(api::id::cuLaunchKernelEx, variant, request, &none, Bulk(&part, 1));
}

CUresult cuLaunchHostFunc(uint32_t variant, CUstream hStream, CUhostFn fn, void* userData) {
  if (!fn) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CUDA_SUCCESS;
  Callbacks& callbacks = TheSession().callbacks();
  const uint64_t id = callbacks.Register({fn, nullptr, hStream, userData}, &result);
  if (result != CUDA_SUCCESS) return result;
  api::None none;
  result = Ask(api::id::cuLaunchHostFunc, variant,
               api::LaunchHostFuncRequest{reinterpret_cast<uint64_t>(hStream), id}, &none);
  if (result != CUDA_SUCCESS) callbacks.Forget(id);
  return result;
}

CUresult cuStreamAddCallback(uint32_t variant, CUstream hStream, CUstreamCallback callback,
                             void* userData, unsigned int flags) {
  if (!callback || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CUDA_SUCCESS;
  Callbacks& callbacks = TheSession().callbacks();
  const uint64_t id = callbacks.Register({nullptr, callback, hStream, userData}, &result);
  if (result != CUDA_SUCCESS) return result;
  api::None none;
  result =
      Ask(api::id::cuStreamAddCallback, variant,
          api::StreamAddCallbackRequest{reinterpret_cast<uint64_t>(hStream), flags, id}, &none);
  if (result != CUDA_SUCCESS) callbacks.Forget(id);
  return result;
}

}  // namespace manual
}  // namespace smolvm::guest
