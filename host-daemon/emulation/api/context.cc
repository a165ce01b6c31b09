#include "host-daemon/emulation/api/context.h"

#include <utility>
#include <vector>

#include "host-daemon/emulation/api/driver.h"
#include "host-daemon/emulation/runtime/program.h"
#include "protocol/api/values.h"

namespace smolvm::emulation {
namespace {

std::atomic<uint64_t> next_context_id{1};

// The defaults that the CUDA programming guide gives; the device enforces the first.
const std::map<CUlimit, size_t>& DefaultLimits() {
  static const auto* limits = new std::map<CUlimit, size_t>{
      {CU_LIMIT_STACK_SIZE, 1024},
      {CU_LIMIT_PRINTF_FIFO_SIZE, size_t{1} << 20},
      {CU_LIMIT_MALLOC_HEAP_SIZE, size_t{8} << 20},
      {CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 64},
      {CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 0},
  };
  return *limits;
}

constexpr size_t kMaxStackBytes = size_t{512} << 10;
constexpr size_t kMaxL2Granularity = 128;

}  // namespace

Context::Context(bool primary, unsigned flags) : primary_(primary), flags_(flags) {}

void Context::Begin() {
  const uint64_t id = next_context_id.fetch_add(1, std::memory_order_relaxed);
  auto group = std::make_shared<StreamGroup>(id, this);
  group->MakeLegacy();
  std::lock_guard lock(mutex_);
  id_.store(id, std::memory_order_relaxed);
  group_ = std::move(group);
  limits_ = DefaultLimits();
  cache_config_ = CU_FUNC_CACHE_PREFER_NONE;
  alive_.store(true, std::memory_order_release);
}

void Context::End() {
  std::shared_ptr<StreamGroup> group;
  std::set<std::shared_ptr<Module>> modules;
  std::set<CUevent> events;
  {
    std::lock_guard lock(mutex_);
    if (!alive_.exchange(false)) return;
    group = std::move(group_);
    group_ = nullptr;
    modules.swap(modules_);
    events.swap(events_);
  }
  group->Cancel();
  group->WaitAll();
  FlushDeviceOutput();
  Driver& driver = TheDriver();
  for (const auto& stream : group->All())
    driver.streams.Remove(reinterpret_cast<CUstream>(stream.get()));
  group->Close();
  for (const CUevent event : events) driver.events.Remove(event);
  for (const auto& module : modules) {
    driver.modules.Remove(module->handle());
    module->Retire();
  }
  const uint64_t ended = group->context_id();
  driver.memory.RemoveIf([ended](const Region& region) { return region.owner == ended; });
}

std::shared_ptr<StreamGroup> Context::group() const {
  std::lock_guard lock(mutex_);
  return group_;
}

CUresult Context::fault() const {
  const auto current = group();
  return current == nullptr ? CUDA_ERROR_CONTEXT_IS_DESTROYED
                            : static_cast<CUresult>(current->fault());
}

CUresult Context::GetLimit(CUlimit limit, size_t* value) const {
  std::lock_guard lock(mutex_);
  const auto found = limits_.find(limit);
  if (found == limits_.end())
    return limit < 0 || limit >= CU_LIMIT_MAX ? CUDA_ERROR_INVALID_VALUE
                                              : CUDA_ERROR_UNSUPPORTED_LIMIT;
  *value = found->second;
  return CUDA_SUCCESS;
}

CUresult Context::SetLimit(CUlimit limit, size_t value) {
  std::lock_guard lock(mutex_);
  const auto found = limits_.find(limit);
  if (found == limits_.end())
    return limit < 0 || limit >= CU_LIMIT_MAX ? CUDA_ERROR_INVALID_VALUE
                                              : CUDA_ERROR_UNSUPPORTED_LIMIT;
  if (limit == CU_LIMIT_STACK_SIZE) {
    if (value > kMaxStackBytes) return CUDA_ERROR_INVALID_VALUE;
    value = (value + 15) / 16 * 16;  // documented: the driver may round it
  } else if (limit == CU_LIMIT_MAX_L2_FETCH_GRANULARITY && value > kMaxL2Granularity) {
    return CUDA_ERROR_INVALID_VALUE;
  } else if (limit == CU_LIMIT_PERSISTING_L2_CACHE_SIZE) {
    value = 0;  // clamped to CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE
  }
  found->second = value;
  return CUDA_SUCCESS;
}

size_t Context::stack_bytes() const {
  size_t bytes = 1024;
  GetLimit(CU_LIMIT_STACK_SIZE, &bytes);
  return bytes;
}

void Context::AddModule(std::shared_ptr<Module> module) {
  std::lock_guard lock(mutex_);
  modules_.insert(std::move(module));
}

void Context::RemoveModule(const Module* module) {
  std::shared_ptr<Module> removed;  // let go of outside the lock
  std::lock_guard lock(mutex_);
  for (auto it = modules_.begin(); it != modules_.end(); ++it) {
    if (it->get() != module) continue;
    removed = *it;
    modules_.erase(it);
    return;
  }
}

void Context::AddEvent(CUevent event) {
  std::lock_guard lock(mutex_);
  events_.insert(event);
}

void Context::RemoveEvent(CUevent event) {
  std::lock_guard lock(mutex_);
  events_.erase(event);
}

std::shared_ptr<Context> PrimaryContext::Retain() {
  std::lock_guard lock(mutex_);
  if (context_ == nullptr) {
    context_ = std::make_shared<Context>(true, flags_);
    TheDriver().contexts.Add(context_);
  }
  if (uses_++ == 0) {
    context_->set_flags(flags_);
    context_->Begin();
  }
  active_ = true;
  return context_;
}

CUresult PrimaryContext::Release() {
  std::lock_guard lock(mutex_);
  if (uses_ == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--uses_ == 0) {
    context_->End();
    active_ = false;
  }
  return CUDA_SUCCESS;
}

CUresult PrimaryContext::Reset() {
  std::lock_guard lock(mutex_);
  if (uses_ == 0) return CUDA_SUCCESS;
  context_->End();
  context_->Begin();
  active_ = false;
  return CUDA_SUCCESS;
}

CUresult PrimaryContext::SetFlags(unsigned flags) {
  if (const CUresult result = CheckContextFlags(flags); result != CUDA_SUCCESS) return result;
  std::lock_guard lock(mutex_);
  flags_ = flags;
  if (uses_ > 0) context_->set_flags(flags);
  return CUDA_SUCCESS;
}

void PrimaryContext::GetState(unsigned* flags, bool* active) {
  std::lock_guard lock(mutex_);
  *flags = flags_;
  *active = active_;
}

CUresult CheckContextFlags(unsigned flags) {
  if (const CUresult result = api::check::cuCtxCreate_v2(flags); result != CUDA_SUCCESS)
    return result;
  return api::refuse::cuCtxCreate_v2(flags);
}

}  // namespace smolvm::emulation
