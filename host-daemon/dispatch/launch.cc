// Kernel launches, and host functions that run in the guest.
#include <algorithm>
#include <cstring>
#include <vector>

#include "host-daemon/dispatch/dispatcher.h"
#include "host-daemon/session/session.h"
#include "protocol/api/host_manual.h"
#include "protocol/api/session.wire.h"
#include "protocol/log/log.h"

namespace smolvm::dispatch {
namespace {

// CUDA 12.1 and later take up to 32,764 bytes of parameters (CUDA programming guide, kernel
// parameters).
constexpr size_t kMaxParamBytes = 32764;
constexpr size_t kMaxLaunchAttributes = 32;

// The packed parameters, as they came. The buffer is the lane's own: a launch copies it before it
// returns.
struct Params {
  void* extra[5];
  size_t size = 0;

  bool Read(session::Call& call) {
    thread_local std::vector<char> block(kMaxParamBytes);
    size = call.bulk_left();
    if (size > kMaxParamBytes) return false;
    if (size > 0 && !call.ReadBulk(block.data(), size)) return false;
    extra[0] = CU_LAUNCH_PARAM_BUFFER_POINTER;
    extra[1] = block.data();
    extra[2] = CU_LAUNCH_PARAM_BUFFER_SIZE;
    extra[3] = &size;
    extra[4] = CU_LAUNCH_PARAM_END;
    return true;
  }
};

// Attributes whose values are numbers pass. The others name events, nodes or memory by address, and
// pass when they name none.
CUresult CheckAttribute(CUlaunchAttribute* attribute) {
  switch (attribute->id) {
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
    case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
      if (attribute->value.accessPolicyWindow.num_bytes != 0) return CUDA_ERROR_NOT_SUPPORTED;
      attribute->value = {};
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
      return attribute->value.programmaticEvent.event ? CUDA_ERROR_NOT_SUPPORTED
                                                      : CUDA_ERROR_INVALID_HANDLE;
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
      return attribute->value.launchCompletionEvent.event ? CUDA_ERROR_NOT_SUPPORTED
                                                          : CUDA_ERROR_INVALID_HANDLE;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

// Reads the packed parameters and finds the function; what is left is the launch itself.
template <typename Request, typename Launch>
uint32_t Prepare(Dispatcher& d, session::Call& call, const Request& in, Launch launch) {
  Params params;
  if (call.bulk_left() > kMaxParamBytes) return CUDA_ERROR_INVALID_VALUE;
  if (!params.Read(call)) return CUDA_ERROR_UNKNOWN;
  CUfunction function = nullptr;
  CUstream stream = nullptr;
  if (!d.handles().Find(in.f, &function) || !d.handles().Find(in.hStream, &stream))
    return CUDA_ERROR_INVALID_HANDLE;
  return launch(function, stream, params);
}

// What the driver's stream calls back with. Owned by the stream until it ran.
struct GuestFunction {
  session::Session* session;
  uint64_t callback_id;
};

void RunInGuest(GuestFunction* function, CUstream stream_id, CUresult status) {
  std::string args;
  Encode(api::HostCallback{function->callback_id, static_cast<uint32_t>(status),
                           reinterpret_cast<uint64_t>(stream_id)},
         &args);
  if (!function->session->CallGuest(args))
    log::Warn("event=host_function_lost id={}", function->callback_id);
  delete function;
}

}  // namespace

namespace manual {

uint32_t cuLaunchKernel(Dispatcher& d, session::Call& call, const api::LaunchKernelRequest& in,
                        api::None*) {
  const auto launch =
      call.per_thread_stream() ? d.driver().cuLaunchKernel_ptsz : d.driver().cuLaunchKernel;
  if (!launch) return d.NotInDriver("cuLaunchKernel");
  return Prepare(d, call, in,
                 [&](CUfunction function, CUstream stream, Params& params) -> uint32_t {
                   return launch(function, in.gridDimX, in.gridDimY, in.gridDimZ, in.blockDimX,
                                 in.blockDimY, in.blockDimZ, in.sharedMemBytes, stream, nullptr,
                                 params.size ? params.extra : nullptr);
                 });
}

// Cooperative launches take no `extra`; the attribute of cuLaunchKernelEx says the same.
uint32_t cuLaunchCooperativeKernel(Dispatcher& d, session::Call& call,
                                   const api::LaunchCooperativeKernelRequest& in, api::None*) {
  const auto launch =
      call.per_thread_stream() ? d.driver().cuLaunchKernelEx_ptsz : d.driver().cuLaunchKernelEx;
  if (!launch) return d.NotInDriver("cuLaunchKernelEx");
  return Prepare(
      d, call, in, [&](CUfunction function, CUstream stream, Params& params) -> uint32_t {
        CUlaunchAttribute cooperative{};
        cooperative.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
        cooperative.value.cooperative = 1;
        CUlaunchConfig config{};
        config.gridDimX = in.gridDimX, config.gridDimY = in.gridDimY, config.gridDimZ = in.gridDimZ;
        config.blockDimX = in.blockDimX, config.blockDimY = in.blockDimY,
        config.blockDimZ = in.blockDimZ;
        config.sharedMemBytes = in.sharedMemBytes;
        config.hStream = stream;
        config.attrs = &cooperative;
        config.numAttrs = 1;
        return launch(&config, function, nullptr, params.size ? params.extra : nullptr);
      });
}

uint32_t cuLaunchKernelEx(Dispatcher& d, session::Call& call, const api::LaunchKernelExRequest& in,
                          api::None*) {
  const auto launch =
      call.per_thread_stream() ? d.driver().cuLaunchKernelEx_ptsz : d.driver().cuLaunchKernelEx;
  if (!launch) return d.NotInDriver("cuLaunchKernelEx");
  std::vector<CUlaunchAttribute> attributes(in.attributes.size() / sizeof(CUlaunchAttribute));
  if (in.attributes.size() % sizeof(CUlaunchAttribute) != 0) return session::Handler::kMalformed;
  if (attributes.size() > kMaxLaunchAttributes) return CUDA_ERROR_INVALID_VALUE;
  if (!attributes.empty()) memcpy(attributes.data(), in.attributes.data(), in.attributes.size());
  for (CUlaunchAttribute& attribute : attributes) {
    if (const CUresult result = CheckAttribute(&attribute)) return result;
  }
  return Prepare(
      d, call, in, [&](CUfunction function, CUstream stream, Params& params) -> uint32_t {
        CUlaunchConfig config{};
        config.gridDimX = in.gridDimX, config.gridDimY = in.gridDimY, config.gridDimZ = in.gridDimZ;
        config.blockDimX = in.blockDimX, config.blockDimY = in.blockDimY,
        config.blockDimZ = in.blockDimZ;
        config.sharedMemBytes = in.sharedMemBytes;
        config.hStream = stream;
        config.attrs = attributes.data();
        config.numAttrs = static_cast<unsigned>(attributes.size());
        return launch(&config, function, nullptr, params.size ? params.extra : nullptr);
      });
}

uint32_t cuLaunchHostFunc(Dispatcher& d, session::Call& call, const api::LaunchHostFuncRequest& in,
                          api::None*) {
  const auto launch =
      call.per_thread_stream() ? d.driver().cuLaunchHostFunc_ptsz : d.driver().cuLaunchHostFunc;
  if (!launch) return d.NotInDriver("cuLaunchHostFunc");
  CUstream stream = nullptr;
  if (!d.handles().Find(in.hStream, &stream)) return CUDA_ERROR_INVALID_HANDLE;
  auto* function = new GuestFunction{&call.session(), in.callback_id};
  const CUresult result = launch(
      stream,
      [](void* data) { RunInGuest(static_cast<GuestFunction*>(data), nullptr, CUDA_SUCCESS); },
      function);
  if (result != CUDA_SUCCESS) delete function;
  return result;
}

uint32_t cuStreamAddCallback(Dispatcher& d, session::Call& call,
                             const api::StreamAddCallbackRequest& in, api::None*) {
  const auto add = call.per_thread_stream() ? d.driver().cuStreamAddCallback_ptsz
                                            : d.driver().cuStreamAddCallback;
  if (!add) return d.NotInDriver("cuStreamAddCallback");
  CUstream stream = nullptr;
  if (!d.handles().Find(in.hStream, &stream)) return CUDA_ERROR_INVALID_HANDLE;
  auto* function = new GuestFunction{&call.session(), in.callback_id};
  const CUresult result = add(
      stream,
      [](CUstream, CUresult status, void* data) {
        RunInGuest(static_cast<GuestFunction*>(data), nullptr, status);
      },
      function, in.flags);
  if (result != CUDA_SUCCESS) delete function;
  return result;
}

}  // namespace manual
}  // namespace smolvm::dispatch
