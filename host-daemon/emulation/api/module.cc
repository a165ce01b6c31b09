#include "host-daemon/emulation/api/module.h"

#include <chrono>
#include <utility>

#include "host-daemon/emulation/api/driver.h"
#include "protocol/gen/exports/error_names.h"
#include "protocol/image/image.h"
#include "protocol/log/log.h"

namespace smolvm::emulation {

const VariableInfo* LoadedImage::FindVariable(std::string_view name) const {
  const auto found = variables.find(name);
  return found == variables.end() ? nullptr : &program->variables()[found->second];
}

std::optional<size_t> LoadedImage::FindKernel(std::string_view name) const {
  const auto found = kernels.find(name);
  return found == kernels.end() ? std::nullopt : std::optional(found->second);
}

void LogRefusal(const char* event, CUresult result, std::string_view reason) {
  while (reason.ends_with('\n')) reason.remove_suffix(1);
  if (reason.empty()) reason = exports::ErrorString(result);
  log::Error("event={} result={} reason={}", event, static_cast<int>(result), log::Quote(reason));
}

CUresult LoadImage(const void* image, const JitOptions& options,
                   std::shared_ptr<LoadedImage>* loaded) {
  LoadOptions load = options.load();
  load.compute_capability = TheDriver().settings.compute_capability;
  load.tier = TheDriver().settings.tier;
  load.compile_limit_ms = TheDriver().settings.compile_limit_ms;
  JitLog log;
  auto made = std::make_shared<LoadedImage>();
  const auto begin = std::chrono::steady_clock::now();
  const CUresult result = Program::Load(image, load, TheDriver().arena, &log, &made->program);
  const std::chrono::duration<float, std::milli> took = std::chrono::steady_clock::now() - begin;
  options.Report(log, took.count());
  if (result != CUDA_SUCCESS) {
    LogRefusal("module_refused", result, log.error);
    return result;
  }
  const auto kernels = made->program->kernels();
  for (size_t i = 0; i < kernels.size(); ++i) made->kernels.emplace(kernels[i].name, i);
  const auto variables = made->program->variables();
  for (size_t i = 0; i < variables.size(); ++i) made->variables.emplace(variables[i].name, i);
  *loaded = std::move(made);
  return CUDA_SUCCESS;
}

void RegisterVariables(const std::shared_ptr<LoadedImage>& image, Context& owner) {
  for (const VariableInfo& variable : image->program->variables()) {
    if (variable.size == 0) continue;
    auto region =
        std::make_shared<Region>(Region::Kind::kVariable, variable.address, variable.size);
    region->owner = owner.id();
    region->context = owner.handle();
    region->managed = variable.is_managed;
    region->release = [image] {};  // the program owns the memory: it stays while the region is used
    if (!TheDriver().memory.Add(std::move(region)))
      log::Error("event=variable_overlaps name={}", log::Quote(variable.name));
  }
}

void ForgetVariables(const LoadedImage& image) {
  for (const VariableInfo& variable : image.program->variables())
    if (variable.size != 0) TheDriver().memory.Remove(variable.address);
}

CUresult Function::Load() {
  if (loaded()) return CUDA_SUCCESS;
  const CUresult result = program().Compile(index_);
  if (result == CUDA_SUCCESS) loaded_.store(true, std::memory_order_release);
  return result;
}

Module::Module(std::shared_ptr<LoadedImage> image, const std::shared_ptr<Context>& context,
               bool of_library)
    : image_(std::move(image)),
      context_(context),
      context_id_(context->id()),
      of_library_(of_library) {}

std::shared_ptr<Function> Module::FunctionAt(size_t index) {
  std::lock_guard lock(mutex_);
  if (retired_) return nullptr;
  auto& function = functions_[index];
  if (function == nullptr) {
    function = std::make_shared<Function>(image_, index, handle(), context_id_);
    TheDriver().functions.Add(function);
  }
  return function;
}

void Module::Retire() {
  std::map<size_t, std::shared_ptr<Function>> functions;
  {
    std::lock_guard lock(mutex_);
    if (retired_) return;
    retired_ = true;
    functions.swap(functions_);
  }
  for (const auto& [index, function] : functions)
    TheDriver().functions.Remove(reinterpret_cast<CUfunction>(function.get()));
  ForgetVariables(*image_);
}

CUresult Library::ModuleIn(Context& context, std::shared_ptr<Module>* module) {
  std::lock_guard lock(mutex_);
  auto& known = modules_[context.id()];
  if ((*module = known.lock()) != nullptr) return CUDA_SUCCESS;
  std::shared_ptr<LoadedImage> image = first_;
  if (std::exchange(first_taken_, true)) {
    const auto flat = image::FlatImage::Read(flat_image_);
    if (!flat) return CUDA_ERROR_INVALID_IMAGE;
    const CUresult result = LoadImage(flat->image(), options_, &image);
    if (result != CUDA_SUCCESS) return result;
  }
  *module = std::make_shared<Module>(image, context.shared_from_this(), true);
  RegisterVariables(image, context);
  TheDriver().modules.Add(*module);
  context.AddModule(*module);
  known = *module;
  return CUDA_SUCCESS;
}

std::shared_ptr<Kernel> Library::KernelAt(size_t index) {
  std::lock_guard lock(mutex_);
  auto& kernel = kernels_[index];
  if (kernel == nullptr) {
    kernel = std::make_shared<Kernel>(weak_from_this(), index);
    TheDriver().kernels.Add(kernel);
  }
  return kernel;
}

void Library::Retire() {
  std::lock_guard lock(mutex_);
  for (const auto& [index, kernel] : kernels_)
    TheDriver().kernels.Remove(reinterpret_cast<CUkernel>(kernel.get()));
  kernels_.clear();
  for (const auto& [id, weak] : modules_) {
    const auto module = weak.lock();
    if (module == nullptr) continue;
    TheDriver().modules.Remove(module->handle());
    if (const auto context = module->context()) context->RemoveModule(module.get());
    module->Retire();
  }
  modules_.clear();
}

CUresult FindFunction(CUfunction handle, std::shared_ptr<Function>* function, Context* context) {
  if (handle == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *function = TheDriver().functions.Find(handle);
  if (*function != nullptr) return CUDA_SUCCESS;
  const auto kernel = TheDriver().kernels.Find(reinterpret_cast<CUkernel>(handle));
  const auto library = kernel == nullptr ? nullptr : kernel->library();
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  CUresult result = context != nullptr ? CUDA_SUCCESS : CurrentContext(&context);
  if (result != CUDA_SUCCESS) return result;
  std::shared_ptr<Module> module;
  result = library->ModuleIn(*context, &module);
  if (result != CUDA_SUCCESS) return result;
  *function = module->FunctionAt(kernel->index());
  if (*function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  // What was set on the kernel holds for its functions that were not set themselves.
  (*function)->settings.Inherit(kernel->settings);
  return CUDA_SUCCESS;
}

}  // namespace smolvm::emulation
