#include "host-daemon/emulation/image/linker.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "host-daemon/emulation/image/link_input.h"
#include "host-daemon/emulation/image/linked_image.h"
#include "host-daemon/emulation/image/load.h"
#include "host-daemon/emulation/ptx/limits.h"
#include "protocol/log/log.h"

namespace smolvm::emulation {
namespace {

using ptx::Linkage;

// Of all inputs together, the members of libraries included.
constexpr size_t kMaxInputs = 1 << 16;

// The names that a module gives to others, and those that it wants of them.
struct Names {
  std::set<std::string> defined;
  std::set<std::string> wanted;
};

Names NamesOf(const ptx::Module& module) {
  Names names;
  const auto enter = [&](std::string_view name, Linkage linkage, bool is_defined) {
    if (is_defined && linkage != Linkage::kNone) names.defined.emplace(name);
    if (!is_defined && !IsDeviceBuiltin(name)) names.wanted.emplace(name);
  };
  for (const ptx::Function& function : module.functions) {
    enter(function.name, function.is_entry ? Linkage::kVisible : function.linkage,
          function.has_body || function.alias_of != ptx::kNoIndex);
  }
  for (const ptx::Variable& variable : module.variables) {
    const bool is_dynamic_shared =
        variable.space == ptx::StateSpace::kShared && variable.is_unsized;
    if (!is_dynamic_shared)
      enter(variable.name, variable.linkage, variable.linkage != Linkage::kExtern);
  }
  return names;
}

class PtxLinker : public Linker {
 public:
  explicit PtxLinker(const LoadOptions& options) : options_(options) {}

  CUresult Add(CUjitInputType type, std::span<const std::byte> data, std::string_view given_name,
               JitLog* log) override {
    const std::string name =
        given_name.empty() ? fmt::format("input {}", added_ + 1) : std::string(given_name);
    InputPtx input;
    std::string error;
    const CUresult result =
        ReadLinkInput(type, data, name, options_.compute_capability, &input, &error);
    if (result != CUDA_SUCCESS) return Refuse(result, name, error, log);
    for (const std::string& why : input.left_out) log->info += fmt::format("info: {}\n", why);
    std::vector<Source> sources;
    uint64_t bytes = bytes_;
    for (NamedPtx& ptx : input.sources) {
      bytes += ptx.text.size();
      if (bytes > ptx::kMaxSourceBytes || inputs_.size() + sources.size() >= kMaxInputs)
        return Refuse(CUDA_ERROR_OUT_OF_MEMORY, name, "more PTX than one link may have", log);
      ptx::Module module;
      const CUresult parsed = ParsePtx(ptx.name, ptx.text, options_, log, &module);
      if (parsed != CUDA_SUCCESS) return parsed;
      sources.push_back({std::move(ptx), NamesOf(module), input.is_library});
    }
    ++added_;
    bytes_ = bytes;
    for (Source& source : sources) inputs_.push_back(std::move(source));
    return CUDA_SUCCESS;
  }

  CUresult Complete(JitLog* log, std::vector<std::byte>* image) override {
    const std::vector<const Source*> chosen = Choose();
    if (chosen.empty())
      return Refuse(CUDA_ERROR_INVALID_IMAGE, "link", "there is no device code to link", log);
    std::vector<NamedPtx> sources;
    std::vector<Program::Input> inputs;
    for (const Source* source : chosen) {
      sources.push_back(source->ptx);
      inputs.push_back({source->ptx.name, source->ptx.text});
    }
    ptx::Module module;  // only to see that it links
    const CUresult result = LinkModule(inputs, options_, log, &module);
    if (result == CUDA_SUCCESS) *image = WriteLinkedImage(sources);
    return result;
  }

 private:
  struct Source {
    NamedPtx ptx;
    Names names;
    bool is_library;
  };

  static CUresult Refuse(CUresult result, std::string_view name, std::string_view why,
                         JitLog* log) {
    log->error += fmt::format("{}: error: {}\n", name, why);
    log::Error("event=link_refused code={} input={} reason={}", static_cast<int>(result),
               log::Quote(name), log::Quote(why));
    return result;
  }

  // All inputs but the members of libraries, and of those each that defines what those chosen so
  // far lack, until nothing more is found.
  std::vector<const Source*> Choose() const {
    std::vector<const Source*> chosen;
    std::vector<const Source*> offered;
    std::set<std::string_view> defined, wanted;
    const auto take = [&](const Source* source) {
      chosen.push_back(source);
      for (const std::string& name : source->names.defined) defined.insert(name);
      for (const std::string& name : source->names.wanted) wanted.insert(name);
    };
    for (const Source& source : inputs_) {
      if (source.is_library) {
        offered.push_back(&source);
      } else {
        take(&source);
      }
    }
    const auto is_lacking = [&](const std::string& name) {
      return wanted.contains(name) && !defined.contains(name);
    };
    for (bool found = true; found;) {
      found = false;
      for (const Source*& source : offered) {
        if (source == nullptr || std::ranges::none_of(source->names.defined, is_lacking)) continue;
        take(std::exchange(source, nullptr));
        found = true;
      }
    }
    return chosen;
  }

  const LoadOptions options_;
  std::vector<Source> inputs_;
  size_t added_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace

std::unique_ptr<Linker> Linker::Make(const LoadOptions& options) {
  return std::make_unique<PtxLinker>(options);
}

}  // namespace smolvm::emulation
