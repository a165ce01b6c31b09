#include "host-daemon/emulation/api/transfer.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "host-daemon/emulation/api/driver.h"
#include "host-daemon/emulation/runtime/program.h"

namespace smolvm::emulation {
namespace {

// Transfers up to this size are done in the calling thread when nothing is before them: that takes
// less time than waking another thread.
constexpr size_t kInlineBytes = size_t{64} << 10;

bool InArena(uintptr_t address) {
  const Arena& arena = TheDriver().arena;
  return address - arena.base() < arena.reserved_bytes();
}

Stream::Where WhereFor(size_t bytes) {
  return bytes <= kInlineBytes ? Stream::Where::kAnywhere : Stream::Where::kThread;
}

void FillRow(std::byte* row, size_t bytes, unsigned element, unsigned element_bytes) {
  switch (element_bytes) {
    case 1:
      std::memset(row, static_cast<int>(element), bytes);
      return;
    case 2:
      std::fill_n(reinterpret_cast<uint16_t*>(row), bytes / 2, static_cast<uint16_t>(element));
      return;
    default:
      std::fill_n(reinterpret_cast<uint32_t*>(row), bytes / 4, element);
  }
}

// A copy whose source is pageable and small: its bytes are taken now.
void SubmitStaged(const std::shared_ptr<Stream>& stream, const Copy& copy) {
  auto bytes = std::make_shared<std::vector<std::byte>>(copy.Bytes());
  Copy staging = copy;
  staging.to = {bytes->data(), nullptr};
  staging.to_distances = {copy.extent.width, copy.extent.width * copy.extent.height};
  staging.Execute();
  Copy rest = copy;
  rest.from = staging.to;
  rest.from_distances = staging.to_distances;
  stream->Submit(Stream::Where::kAnywhere, [stream = stream.get(), rest, bytes] {
    if (stream->group().fault() == 0) rest.Execute();
  });
}

}  // namespace

CUresult DevicePlace(CUdeviceptr address, size_t bytes, Place* place) {
  place->region = TheDriver().memory.Find(address);
  if (place->region == nullptr || !place->region->IsDevice() ||
      !place->region->Holds(address, bytes))
    return CUDA_ERROR_INVALID_VALUE;
  place->at = reinterpret_cast<std::byte*>(address);
  return CUDA_SUCCESS;
}

CUresult HostPlace(const void* address, size_t bytes, Place* place) {
  const auto value = reinterpret_cast<uintptr_t>(address);
  if (value == 0 || value + bytes < value) return CUDA_ERROR_INVALID_VALUE;
  if (InArena(value)) return DevicePlace(value, bytes, place);
  // Partly pinned memory counts as pageable.
  place->region = TheDriver().memory.Find(value);
  if (place->region != nullptr && !place->region->Holds(value, bytes)) place->region = nullptr;
  place->at = reinterpret_cast<std::byte*>(value);
  return CUDA_SUCCESS;
}

void Copy::Execute() const {
  const bool contiguous = (extent.height == 1 || (to_distances.row == extent.width &&
                                                  from_distances.row == extent.width)) &&
                          extent.depth == 1;
  if (contiguous) {
    std::memmove(to.at, from.at, extent.width * extent.height);
    return;
  }
  for (size_t z = 0; z < extent.depth; ++z)
    for (size_t y = 0; y < extent.height; ++y)
      std::memmove(to.at + z * to_distances.slice + y * to_distances.row,
                   from.at + z * from_distances.slice + y * from_distances.row, extent.width);
}

CUresult RunCopy(const std::shared_ptr<Stream>& stream, Copy copy, Mode mode) {
  if (const CUresult fault = FaultOf(*stream); fault != CUDA_SUCCESS) return fault;
  // The host looks at managed memory as soon as the call has returned.
  const bool device_only = !copy.to.Pageable() && !copy.from.Pageable() &&
                           copy.to.region->IsDevice() && copy.from.region->IsDevice() &&
                           !copy.to.region->managed && !copy.from.region->managed;
  const bool memops = copy.to.SyncMemops() || copy.from.SyncMemops();
  const bool wait =
      mode == Mode::kSynchronous
          ? !device_only || memops
          : copy.to.Pageable() || (copy.from.Pageable() && copy.Bytes() > kInlineBytes);
  if (wait) {
    stream->Run([&] {
      if (stream->group().fault() == 0) copy.Execute();
    });
    FlushDeviceOutput();  // documented: a blocking copy writes out what kernels have printed
    return FaultOf(*stream);
  }
  if (copy.from.Pageable() && !stream->Idle()) {
    SubmitStaged(stream, copy);
    return CUDA_SUCCESS;
  }
  if (copy.from.Pageable()) {  // idle a moment ago; if that has changed, this waits for it
    stream->Run([&] { copy.Execute(); });
    return CUDA_SUCCESS;
  }
  const Stream::Where where = WhereFor(copy.Bytes());
  stream->Submit(where, [stream = stream.get(), copy = std::move(copy)] {
    if (stream->group().fault() == 0) copy.Execute();
  });
  return CUDA_SUCCESS;
}

void Fill::Execute() const {
  for (size_t y = 0; y < extent.height; ++y)
    FillRow(to.at + y * distances.row, extent.width, element, element_bytes);
}

CUresult RunFill(const std::shared_ptr<Stream>& stream, Fill fill) {
  if (const CUresult fault = FaultOf(*stream); fault != CUDA_SUCCESS) return fault;
  const bool wait = fill.to.SyncMemops();
  const Stream::Where where = WhereFor(fill.extent.width * fill.extent.height);
  const Ticket ticket = stream->Submit(where, [stream = stream.get(), fill = std::move(fill)] {
    if (stream->group().fault() == 0) fill.Execute();
  });
  if (wait) ticket.Wait();
  return CUDA_SUCCESS;
}

}  // namespace smolvm::emulation
