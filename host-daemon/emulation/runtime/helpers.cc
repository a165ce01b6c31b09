// The helper table's part that concerns threads, blocks, memory and output. Arithmetic is in
// math.cc.
#include "host-daemon/emulation/runtime/helpers.h"

#include <time.h>

#include <cstring>
#include <string>

#include "host-daemon/emulation/runtime/block.h"
#include "host-daemon/emulation/runtime/heap.h"
#include "host-daemon/emulation/runtime/launch.h"
#include "host-daemon/emulation/runtime/math.h"
#include "host-daemon/emulation/runtime/output.h"
#include "host-daemon/emulation/runtime/worker.h"
#include "protocol/log/log.h"

namespace smolvm::emulation {
namespace {

void HelpFault(ThreadContext*, uint32_t kind, uint64_t address) {
  Worker::Running()->Raise(static_cast<FaultKind>(kind), address);
}

void HelpYield(ThreadContext* self) { self->block->Yield(self); }

void HelpExit(ThreadContext* self) { self->block->Exit(self); }

void* HelpFrame(ThreadContext* self, uint64_t bytes) {
  void* frame = self->block->Frame(self, bytes);
  if (frame == nullptr) Worker::Running()->Raise(FaultKind::kStackOverflow, 0);
  return frame;
}

void HelpFinish(ThreadContext* self) { self->block->Finish(self); }

void HelpBarSync(ThreadContext* self, uint32_t id, uint32_t count) {
  self->block->Barrier(self, id, count);
}

void HelpBarArrive(ThreadContext* self, uint32_t id, uint32_t count) {
  self->block->BarrierArrive(self, id, count);
}

uint32_t HelpBarRed(ThreadContext* self, uint32_t id, uint32_t count, uint32_t op,
                    uint32_t predicate) {
  return self->block->BarrierReduce(self, id, count, static_cast<BarrierRed>(op), predicate & 1);
}

uint32_t HelpBarResult(ThreadContext* self, uint32_t, uint32_t op) {
  return self->block->BarrierResult(self, static_cast<BarrierRed>(op));
}

void HelpWarpSync(ThreadContext* self, uint32_t mask) {
  self->block->Meet(self, WarpOp::kSync, 0, mask);
}

// Low half: the value; bit 32: the predicate.
uint64_t Packed(const LaneSlot& slot) {
  return (slot.value & 0xffffffff) | static_cast<uint64_t>(slot.flag & 1) << 32;
}

uint64_t HelpWarpResult(ThreadContext* self) { return Packed(self->block->lane(self)); }

uint64_t HelpShfl(ThreadContext* self, uint32_t mode, uint32_t mask, uint32_t value, uint32_t b,
                  uint32_t c) {
  LaneSlot& slot = self->block->lane(self);
  slot.value = value;
  slot.aux[0] = b;
  slot.aux[1] = c;
  self->block->Meet(self, WarpOp::kShuffle, mode, mask);
  return Packed(slot);
}

uint32_t HelpVote(ThreadContext* self, uint32_t mode, uint32_t mask, uint32_t predicate) {
  LaneSlot& slot = self->block->lane(self);
  slot.aux[0] = predicate & 1;
  self->block->Meet(self, WarpOp::kVote, mode, mask);
  return static_cast<uint32_t>(slot.value);
}

uint64_t HelpMatch(ThreadContext* self, uint32_t all, uint32_t mask, uint64_t value) {
  LaneSlot& slot = self->block->lane(self);
  slot.value = value;
  slot.flag = 0;
  self->block->Meet(self, all ? WarpOp::kMatchAll : WarpOp::kMatchAny, 0, mask);
  return Packed(slot);
}

uint32_t HelpRedux(ThreadContext* self, uint32_t op, uint32_t mask, uint32_t value) {
  LaneSlot& slot = self->block->lane(self);
  slot.value = value;
  self->block->Meet(self, WarpOp::kRedux, op, mask);
  return static_cast<uint32_t>(slot.value);
}

uint32_t HelpActiveMask(ThreadContext* self, uint32_t site) {
  return self->block->ActiveMask(self, site);
}

uint64_t HelpElect(ThreadContext* self, uint32_t mask) {
  self->block->Meet(self, WarpOp::kElect, 0, mask);
  return Packed(self->block->lane(self));
}

// Reads what the kernel itself could read; a page that no allocation owns faults as the kernel's
// own load would.
bool ReadDevice(uint64_t address, void* out, size_t size) {
  const Launch* launch = Worker::Running()->launch();
  const Arena& arena = *launch->arena;
  if (size > arena.reserved_bytes() || address - arena.base() > arena.reserved_bytes() - size)
    return false;
  memcpy(out, reinterpret_cast<const void*>(address), size);
  return true;
}

// Nothing that needs a destructor may live across a device read: a fault there forgets this stack.
// Hence the copies first, into buffers that the worker owns.
uint32_t HelpPrintf(ThreadContext*, uint64_t format, uint64_t arguments) {
  Worker* worker = Worker::Running();
  std::string& text = worker->text();
  text.clear();
  const int result = FormatDevicePrintf(ReadDevice, format, arguments, &text);
  AppendDeviceOutput(text);
  return static_cast<uint32_t>(result);
}

std::string_view CopyString(uint64_t address, char* buffer, size_t size) {
  size_t n = 0;
  while (address != 0 && n + 1 < size && ReadDevice(address + n, buffer + n, 1) &&
         buffer[n] != '\0')
    ++n;
  return {buffer, n};
}

void HelpAssertFail(ThreadContext* self, uint64_t message, uint64_t file, uint32_t line,
                    uint64_t function, uint64_t) {
  char text[3][256];
  const std::string_view what = CopyString(message, text[0], sizeof text[0]);
  const std::string_view where = CopyString(file, text[1], sizeof text[1]);
  const std::string_view in = CopyString(function, text[2], sizeof text[2]);
  const BlockContext& block = *self->block_context;
  // The wording that the programming guide shows for a failed assertion, which goes to stderr at
  // synchronisation.
  fmt::print(stderr, "{}:{}: {}: block: [{},{},{}], thread: [{},{},{}] Assertion `{}` failed.\n",
             where, line, in, block.ctaid[0], block.ctaid[1], block.ctaid[2], self->tid[0],
             self->tid[1], self->tid[2], what);
  Worker::Running()->Raise(FaultKind::kAssert, 0);
}

uint64_t HelpMalloc(ThreadContext*, uint64_t bytes) {
  return DeviceHeap::Of(*Worker::Running()->launch()->arena).Allocate(bytes);
}

void HelpFree(ThreadContext*, uint64_t address) {
  if (address == 0) return;
  if (!DeviceHeap::Of(*Worker::Running()->launch()->arena).Free(address)) {
    Worker::Running()->Raise(FaultKind::kIllegalAddress, address);
  }
}

uint64_t HelpGlobalTimer() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000 + static_cast<uint64_t>(now.tv_nsec);
}

// PTX ISA, nanosleep: the delay is a hint in [0, 2t]; others get to run instead.
void HelpNanoSleep(ThreadContext* self, uint32_t) {
  if (self->block != nullptr) self->block->Yield(self);
}

}  // namespace

void* const* HelperTable() {
  static void* const table[] = {
#define HELPER(name, signature) reinterpret_cast<void*>(&Help##name),
      SMOLVM_HELPERS(HELPER)
#undef HELPER
  };
  return table;
}

void SetBlockIndex(const Launch& launch, uint64_t index, BlockContext* context) {
  const uint32_t* grid = launch.config->grid;
  context->ctaid[0] = static_cast<uint32_t>(index % grid[0]);
  context->ctaid[1] = static_cast<uint32_t>(index / grid[0] % grid[1]);
  context->ctaid[2] = static_cast<uint32_t>(index / grid[0] / grid[1]);
}

void FillBlockContext(const Launch& launch, uint64_t index, uintptr_t memory,
                      BlockContext* context) {
  memcpy(context->ntid, launch.config->block, sizeof context->ntid);
  memcpy(context->nctaid, launch.config->grid, sizeof context->nctaid);
  context->dynamic_shared_bytes = static_cast<uint32_t>(launch.config->dynamic_shared_bytes);
  context->shared_base = memory;
  context->shared_bytes = launch.shared_bytes;
  context->local_bytes = launch.local_bytes;
  context->params = launch.params;
  context->param_bytes = launch.param_bytes;
  context->variables = launch.code->variables;
  context->helpers = HelperTable();
  context->grid_id = launch.grid_id;
  context->grid_workspace = launch.grid_workspace;
  SetBlockIndex(launch, index, context);
}

}  // namespace smolvm::emulation
