// What programs ask about stream capture. No call of a session begins a capture
// (cuStreamBeginCapture is not served), so that no stream is ever captured, whatever the host's
// driver can do; frameworks ask before each allocation, which should cost no round trip.
#include <utility>

#include "guest-shim/libcuda/entry/entry.h"
#include "protocol/api/guest_manual.h"
#include "protocol/api/stream.wire.h"
#include "protocol/api/values.h"

namespace smolvm::guest {
namespace {

// CUDA_SUCCESS when the program may ask about the stream, or what the host says.
CUresult CheckStream(uint32_t variant, CUstream stream) {
  if (KnownStream(stream) && ContextProved()) return CUDA_SUCCESS;
  api::StreamGetFlagsReply flags;
  return Ask(api::id::cuStreamGetFlags, variant,
             api::StreamGetFlagsRequest{reinterpret_cast<uint64_t>(stream)}, &flags);
}

}  // namespace

namespace manual {

CUresult cuStreamIsCapturing(uint32_t variant, CUstream hStream,
                             CUstreamCaptureStatus* captureStatus) {
  if (!captureStatus) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = CheckStream(variant, hStream)) return result;
  *captureStatus = CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

// Documented: but for the status, what is returned is valid only of a capture that is active.
CUresult cuStreamGetCaptureInfo(uint32_t variant, CUstream hStream,
                                CUstreamCaptureStatus* captureStatus_out, cuuint64_t*) {
  return cuStreamIsCapturing(variant, hStream, captureStatus_out);
}

CUresult cuStreamGetCaptureInfo_v2(uint32_t variant, CUstream hStream,
                                   CUstreamCaptureStatus* captureStatus_out, cuuint64_t*, CUgraph*,
                                   const CUgraphNode**, size_t*) {
  return cuStreamIsCapturing(variant, hStream, captureStatus_out);
}

CUresult cuStreamGetCaptureInfo_v3(uint32_t variant, CUstream hStream,
                                   CUstreamCaptureStatus* captureStatus_out, cuuint64_t*, CUgraph*,
                                   const CUgraphNode** dependencies_out,
                                   const CUgraphEdgeData** edgeData_out, size_t*) {
  if (edgeData_out && !dependencies_out) return CUDA_ERROR_INVALID_VALUE;
  return cuStreamIsCapturing(variant, hStream, captureStatus_out);
}

// The mode restricts calls while something is captured; it is kept, since libraries set it and put
// it back.
CUresult cuThreadExchangeStreamCaptureMode(uint32_t, CUstreamCaptureMode* mode) {
  if (!mode) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = api::check::cuThreadExchangeStreamCaptureMode(*mode)) return result;
  std::swap(*mode, CurrentLane().capture_mode);
  return CUDA_SUCCESS;
}

}  // namespace manual
}  // namespace smolvm::guest
