// The guest's side: exported functions that check, encode, send, decode. What they stand on is
// guest-shim/libcuda/entry/entry.h.
#include <fmt/format.h>

#include <map>

#include "protocol/gen/model.h"

namespace smolvm::gen {
namespace {

const char* KindName(api::Handle handle) {
  static const std::map<int, const char*> names = {
      {api::CONTEXT, "kContext"}, {api::STREAM, "kStream"},     {api::EVENT, "kEvent"},
      {api::MODULE, "kModule"},   {api::FUNCTION, "kFunction"}, {api::LIBRARY, "kLibrary"},
      {api::KERNEL, "kKernel"},   {api::MEM_POOL, "kMemPool"},  {api::LINK, "kLink"}};
  return names.at(handle);
}

// request.x = …; returns from the function when the parameter cannot be sent.
std::string EncodeParam(const Param& param, const Field& field) {
  const std::string& n = param.name;
  if (field.options.device()) {
    return fmt::format(
        "  request.{0} = {0};\n  if (!ToHostOrdinal(&request.{0})) return "
        "CUDA_ERROR_INVALID_DEVICE;\n",
        n);
  }
  if (field.options.handle())
    return fmt::format("  request.{0} = reinterpret_cast<uint64_t>({0});\n", n);
  if (field.string())
    return fmt::format("  if (!{0}) return CUDA_ERROR_INVALID_VALUE;\n  request.{0} = {0};\n", n);
  if (field.pod()) {
    return fmt::format(
        "  if (!{0}) return CUDA_ERROR_INVALID_VALUE;\n"
        "  request.{0}.assign(reinterpret_cast<const char*>({0}), sizeof *{0});\n",
        n);
  }
  return fmt::format("  request.{0} = static_cast<decltype(request.{0})>({0});\n", n);
}

std::string DecodeResult(const Param& param, const Field& field) {
  const std::string& n = param.name;
  const std::string guard = field.options.nullable() ? fmt::format("  if ({}) ", n) : "  ";
  const std::string type = param.pointee();
  if (field.options.device()) return guard + fmt::format("*{0} = ToGuestOrdinal(reply.{0});\n", n);
  if (field.options.handle()) {
    std::string text = guard + fmt::format("*{0} = reinterpret_cast<{1}>(reply.{0});\n", n, type);
    if (field.options.handle() == api::CONTEXT)
      text += fmt::format("  ContextSeen(reply.{});\n", n);
    if (field.options.mints())
      text += fmt::format("  Minted(Kind::{}, reply.{});\n", KindName(field.options.handle()), n);
    return text;
  }
  if (field.pod()) {
    return fmt::format("  if (reply.{0}.size() != sizeof *{0}) return BadReply();\n", n) + guard +
           fmt::format("memcpy({0}, reply.{0}.data(), sizeof *{0});\n", n);
  }
  return guard + fmt::format("*{0} = static_cast<{1}>(reply.{0});\n", n, type);
}

// Whether the guest itself can tell that the host will not refuse the call at once.
std::string KnownCondition(const CallModel& call) {
  std::string condition = "ContextProved()";
  for (const Field& field : call.request_fields) {
    if (field.options.handle() == api::STREAM) condition += " && KnownStream(" + field.name() + ")";
    if (field.options.handle() == api::EVENT) condition += " && KnownEvent(" + field.name() + ")";
    if (!field.options.extent().empty()) {
      condition +=
          fmt::format(" && KnownMemory({}, {})", field.name(), Widen(call, field.options.extent()));
    }
  }
  if (!call.options.check().empty()) condition += " && (" + Widen(call, call.options.check()) + ")";
  return condition;
}

std::string AfterSuccess(const CallModel& call) {
  std::string text;
  for (const Param& param : call.params) {
    if (const Field* field = call.reply_field(param.name)) text += DecodeResult(param, *field);
  }
  for (const Field& field : call.reply_fields) {
    if (!field.options.mints_memory().empty()) {
      text += fmt::format("  if (!MemoryMinted(*{0}, {1})) return GiveMemoryBack(*{0});\n",
                          field.name(), field.options.mints_memory());
    }
  }
  for (const Field& field : call.request_fields) {
    if (field.options.ends()) {
      text += fmt::format("  Ended(Kind::{}, request.{});\n", KindName(field.options.handle()),
                          field.name());
    }
    if (field.options.frees_memory()) text += fmt::format("  MemoryFreed({});\n", field.name());
  }
  return text;
}

std::string Body(const CallModel& call) {
  std::string text;
  for (const Param& param : call.params) {
    const Field* field = call.reply_field(param.name);
    if (field && !field->options.nullable()) {
      text += fmt::format("  if (!{}) return CUDA_ERROR_INVALID_VALUE;\n", param.name);
    }
  }
  text += fmt::format("  api::{} request;\n", call.request);
  for (const Param& param : call.params) {
    if (const Field* field = call.request_field(param.name)) text += EncodeParam(param, *field);
  }
  text += fmt::format("  api::{} reply;\n", call.reply);
  if (call.async())
    text += fmt::format("  if ({}) return Post({}, variant, request);\n", KnownCondition(call),
                        call.id());
  const char* context = call.options.changes_context() ? "  ContextChanged();\n" : "";
  text += fmt::format("  const CUresult result = Ask({}, variant, request, &reply);\n{}", call.id(),
                      context);
  text += "  if (result != CUDA_SUCCESS) return result;\n";
  if (call.async()) text += "  ProveContext();\n";
  if (call.options.ends_context()) text += "  ForgetAll();\n";
  return text + AfterSuccess(call) + "  return CUDA_SUCCESS;\n";
}

std::string Export(const CallModel& call, const std::string& symbol, const char* variant) {
  return fmt::format(
      "CUresult CUDAAPI {}({}) {{\n  return Guard({}, [&] {{ return {}{}({}{}); }});\n}}\n", symbol,
      call.declaration().empty() ? "void" : call.declaration(), call.id(),
      call.by_hand_in_guest() ? "manual::" : "Run_", call.name, variant, call.more_param_names());
}

}  // namespace

std::string EmitEntry(const Section& section) {
  std::string text = Banner() + fmt::format(
                                    "#include \"protocol/api/{}.wire.h\"\n\n#include <cstring>\n\n"
                                    "#include \"guest-shim/libcuda/entry/entry.h\"\n"
                                    "#include \"protocol/api/guest_manual.h\"\n\n"
                                    "namespace smolvm::guest {{\nnamespace {{\n",
                                    section.name);
  for (const CallModel& call : section.calls) {
    if (call.by_hand_in_guest()) continue;
    text += fmt::format("\nCUresult Run_{}([[maybe_unused]] uint32_t variant{}) {{\n{}}}\n",
                        call.name, call.more_declaration(), Body(call));
  }
  text +=
      "\n}  // namespace\n}  // namespace smolvm::guest\n\nusing namespace smolvm;\nusing "
      "namespace smolvm::guest;\n\n"
      "#pragma GCC visibility push(default)\nextern \"C\" {\n";
  for (const CallModel& call : section.calls) {
    text += Export(call, call.name, "kNoVariant");
    if (!call.variant.empty())
      text += Export(call, call.name + call.variant, "wire::kFlagPerThreadStream");
    for (const std::string& symbol : call.legacy) text += Export(call, symbol, "kNoVariant");
  }
  return text + "}\n#pragma GCC visibility pop\n";
}

std::string EmitGuestManual(const Model& model) {
  std::string text = Banner() +
                     "// What guest-shim/libcuda/entry writes by hand. `variant` is 0 or "
                     "wire::kFlagPerThreadStream.\n"
                     "#pragma once\n#include <cuda.h>\n\n#include <cstdint>\n\nnamespace "
                     "smolvm::guest::manual {\n\n";
  for (const CallModel* call : model.calls()) {
    if (!call->by_hand_in_guest()) continue;
    text += fmt::format("CUresult {}(uint32_t variant{});\n", call->name, call->more_declaration());
  }
  return text + "\n}  // namespace smolvm::guest::manual\n";
}

}  // namespace smolvm::gen
