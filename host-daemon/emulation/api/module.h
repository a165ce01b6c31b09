// Modules and libraries, and the kernels in them.
//
// A Program is a loaded image. A module is a program in one context. A library is an image that
// becomes a module in each context that uses it; its kernels (CUkernel) stand for the functions of
// all those modules.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "host-daemon/emulation/api/jit_options.h"
#include "host-daemon/emulation/runtime/program.h"

namespace smolvm::emulation {

class Context;
class Library;
class Module;

// A program with its kernels and variables found by name.
struct LoadedImage {
  std::unique_ptr<Program> program;
  std::unordered_map<std::string_view, size_t> kernels;  // names lie in the program
  std::unordered_map<std::string_view, size_t> variables;

  // Null when there is no such name.
  const VariableInfo* FindVariable(std::string_view name) const;
  std::optional<size_t> FindKernel(std::string_view name) const;
};

// Loads `image` and makes its variables known to the memory map as belonging to `owner`. They leave
// it in ForgetVariables.
// Why an image or a link was refused, for who runs the program. It may not have given a buffer for
// it.
void LogRefusal(const char* event, CUresult result, std::string_view reason);

CUresult LoadImage(const void* image, const JitOptions& options,
                   std::shared_ptr<LoadedImage>* loaded);
void RegisterVariables(const std::shared_ptr<LoadedImage>& image, Context& owner);
void ForgetVariables(const LoadedImage& image);

// The attributes of a kernel that a program may set.
struct FunctionSettings {
  std::atomic<int> max_dynamic_shared{-1};  // -1 = not set
  std::atomic<int> carveout{-1};
  std::atomic<int> cache_config{CU_FUNC_CACHE_PREFER_NONE};

  // Takes over what is set there and not here.
  void Inherit(const FunctionSettings& from) {
    if (max_dynamic_shared < 0) max_dynamic_shared = from.max_dynamic_shared.load();
    if (carveout < 0) carveout = from.carveout.load();
  }
};

// A kernel of a module: CUfunction.
// Lifetime: as long as its handle or a launch; keeps the program loaded.
class Function {
 public:
  Function(std::shared_ptr<LoadedImage> image, size_t index, CUmodule module, uint64_t context_id)
      : image_(std::move(image)), index_(index), module_(module), context_id_(context_id) {}

  Program& program() const { return *image_->program; }
  const KernelInfo& info() const { return image_->program->kernels()[index_]; }
  size_t index() const { return index_; }
  CUmodule module() const { return module_; }
  uint64_t context_id() const { return context_id_; }
  const std::shared_ptr<LoadedImage>& image() const { return image_; }

  // Compiles it, once.
  CUresult Load();
  bool loaded() const { return loaded_.load(std::memory_order_acquire); }

  FunctionSettings settings;

 private:
  const std::shared_ptr<LoadedImage> image_;
  const size_t index_;
  const CUmodule module_;
  const uint64_t context_id_;
  std::atomic<bool> loaded_{false};
};

// Lifetime: shared by the handle table and its context.
// Threads: every function may be called from any thread.
class Module {
 public:
  Module(std::shared_ptr<LoadedImage> image, const std::shared_ptr<Context>& context,
         bool of_library);

  const std::shared_ptr<LoadedImage>& image() const { return image_; }
  std::shared_ptr<Context> context() const { return context_.lock(); }
  bool of_library() const { return of_library_; }
  CUmodule handle() { return reinterpret_cast<CUmodule>(this); }

  // The function's handle is made at its first use.
  std::shared_ptr<Function> FunctionAt(size_t index);
  // Makes every function's handle invalid and takes the variables out of the memory map.
  void Retire();

 private:
  const std::shared_ptr<LoadedImage> image_;
  const std::weak_ptr<Context> context_;
  const uint64_t context_id_;
  const bool of_library_;
  std::mutex mutex_;
  std::map<size_t, std::shared_ptr<Function>> functions_;
  bool retired_ = false;
};

// A kernel of a library: CUkernel.
class Kernel {
 public:
  Kernel(std::weak_ptr<Library> library, size_t index)
      : library_(std::move(library)), index_(index) {}
  std::shared_ptr<Library> library() const { return library_.lock(); }
  size_t index() const { return index_; }

  FunctionSettings settings;

 private:
  const std::weak_ptr<Library> library_;
  const size_t index_;
};

// Lifetime: shared by the handle table and calls in progress. Needs no context and outlives them.
// Threads: every function may be called from any thread.
class Library : public std::enable_shared_from_this<Library> {
 public:
  Library(std::vector<std::byte> flat_image, JitOptions options, std::shared_ptr<LoadedImage> first)
      : flat_image_(std::move(flat_image)), options_(options), first_(std::move(first)) {}

  CUlibrary handle() { return reinterpret_cast<CUlibrary>(this); }
  const LoadedImage& image() const { return *first_; }

  // The library's module in `context`, loaded at the first use there: each context has its own
  // variables.
  CUresult ModuleIn(Context& context, std::shared_ptr<Module>* module);
  std::shared_ptr<Kernel> KernelAt(size_t index);
  void Retire();

 private:
  const std::vector<std::byte> flat_image_;
  const JitOptions options_;
  const std::shared_ptr<LoadedImage> first_;  // also the first module's
  std::mutex mutex_;
  bool first_taken_ = false;
  std::map<uint64_t, std::weak_ptr<Module>> modules_;  // by context id
  std::map<size_t, std::shared_ptr<Kernel>> kernels_;
};

// Takes a CUfunction, or a CUkernel cast to one, which stands for its function in `context` (null:
// the current one). CUDA_ERROR_INVALID_HANDLE when it is neither.
CUresult FindFunction(CUfunction handle, std::shared_ptr<Function>* function,
                      Context* context = nullptr);

}  // namespace smolvm::emulation
