#include <algorithm>

#include "host-daemon/emulation/api/api.h"
#include "host-daemon/emulation/api/launch.h"
#include "protocol/log/log.h"

namespace smolvm::emulation {
namespace {

// What goes wrong here can only be told later, and ends the context.
void RunKernel(Stream& stream, const Function& function, const LaunchConfig& config,
               const std::vector<std::byte>& params) {
  if (stream.group().fault() != 0) return;
  const CUresult result = function.program().Launch(function.index(), config, params);
  if (result == CUDA_SUCCESS) return;
  log::Error("event=kernel_failed kernel={} result={}", log::Quote(function.info().name),
             static_cast<int>(result));
  stream.group().SetFault(result);
}

// Where a launch runs. Documented: a kernel of a library takes the context of the stream, whichever
// is current; a function has its own, which must be the stream's and here also the current one.
CUresult FindLaunchContext(CUfunction function, const Stream& stream,
                           std::shared_ptr<Context>* context) {
  Context* current = nullptr;
  const CUresult result = CurrentContext(&current);
  if (result == CUDA_SUCCESS && current->id() == stream.group().context_id()) {
    *context = current->shared_from_this();
    return CUDA_SUCCESS;
  }
  if (TheDriver().kernels.Find(reinterpret_cast<CUkernel>(function)) == nullptr)
    return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_HANDLE;
  SMOLVM_RETURN_IF_ERROR(FindContext(reinterpret_cast<CUcontext>(stream.group().owner()), context));
  return FaultOf(stream);
}

// Everything that a launch can be refused for is checked here, in the calling thread.
CUresult Launch(CUfunction handle, LaunchShape shape, CUstream stream_handle, void** params,
                void** extra, const CUlaunchConfig* config) {
  SMOLVM_ENTER();
  std::shared_ptr<Stream> stream;
  SMOLVM_RETURN_IF_ERROR(FindStream(stream_handle, &stream));
  std::shared_ptr<Context> context;
  SMOLVM_RETURN_IF_ERROR(FindLaunchContext(handle, *stream, &context));
  std::shared_ptr<Function> function;
  SMOLVM_RETURN_IF_ERROR(FindFunction(handle, &function, context.get()));
  if (function->context_id() != context->id()) return CUDA_ERROR_INVALID_HANDLE;
  LaunchExtras extras;
  if (config != nullptr) SMOLVM_RETURN_IF_ERROR(ReadLaunchAttributes(*config, &extras));
  shape.cooperative |= extras.cooperative;
  std::vector<std::shared_ptr<Event>> events;
  for (const CUevent event : extras.events) {
    events.push_back(event == nullptr ? nullptr : TheDriver().events.Find(event));
    if (events.back() == nullptr || events.back()->context_id() != context->id())
      return CUDA_ERROR_INVALID_HANDLE;
  }
  SMOLVM_RETURN_IF_ERROR(CheckShape(shape, *function));
  std::vector<std::byte> packed;
  SMOLVM_RETURN_IF_ERROR(PackParams(function->info(), params, extra, &packed));
  SMOLVM_RETURN_IF_ERROR(function->Load());

  LaunchConfig launch = {};
  std::copy(std::begin(shape.grid), std::end(shape.grid), launch.grid);
  std::copy(std::begin(shape.block), std::end(shape.block), launch.block);
  launch.dynamic_shared_bytes = shape.shared_bytes;
  launch.cooperative = shape.cooperative;
  launch.priority = extras.priority.value_or(stream->priority());
  launch.stack_bytes_per_thread = context->stack_bytes();
  launch.timeout_ms = TheDriver().settings.kernel_timeout_ms;
  stream->Submit(Stream::Where::kThread,
                 [stream = stream.get(), function = std::move(function), launch,
                  packed = std::move(packed)] { RunKernel(*stream, *function, launch, packed); });
  for (const auto& event : events) event->Record(stream);
  return CUDA_SUCCESS;
}

CUresult LaunchEx(const CUlaunchConfig* config, CUfunction function, CUstream stream, void** params,
                  void** extra) {
  SMOLVM_ENTER();
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const LaunchShape shape = {{config->gridDimX, config->gridDimY, config->gridDimZ},
                             {config->blockDimX, config->blockDimY, config->blockDimZ},
                             config->sharedMemBytes};
  return Launch(function, shape, stream, params, extra, config);
}

}  // namespace

SMOLVM_API cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                          unsigned by, unsigned bz, unsigned shared, CUstream stream, void** params,
                          void** extra) {
  return Launch(f, {{gx, gy, gz}, {bx, by, bz}, shared}, Legacy(stream), params, extra, nullptr);
}
SMOLVM_API cuLaunchKernel_ptsz(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                               unsigned by, unsigned bz, unsigned shared, CUstream stream,
                               void** params, void** extra) {
  return Launch(f, {{gx, gy, gz}, {bx, by, bz}, shared}, PerThread(stream), params, extra, nullptr);
}

SMOLVM_API cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** params,
                            void** extra) {
  return LaunchEx(config, f, config == nullptr ? nullptr : Legacy(config->hStream), params, extra);
}
SMOLVM_API cuLaunchKernelEx_ptsz(const CUlaunchConfig* config, CUfunction f, void** params,
                                 void** extra) {
  return LaunchEx(config, f, config == nullptr ? nullptr : PerThread(config->hStream), params,
                  extra);
}

SMOLVM_API cuLaunchCooperativeKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz,
                                     unsigned bx, unsigned by, unsigned bz, unsigned shared,
                                     CUstream stream, void** params) {
  return Launch(f, {{gx, gy, gz}, {bx, by, bz}, shared, true}, Legacy(stream), params, nullptr,
                nullptr);
}
SMOLVM_API cuLaunchCooperativeKernel_ptsz(CUfunction f, unsigned gx, unsigned gy, unsigned gz,
                                          unsigned bx, unsigned by, unsigned bz, unsigned shared,
                                          CUstream stream, void** params) {
  return Launch(f, {{gx, gy, gz}, {bx, by, bz}, shared, true}, PerThread(stream), params, nullptr,
                nullptr);
}

}  // namespace smolvm::emulation
