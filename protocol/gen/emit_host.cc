// The host's side: decode a request, look its handles up, call the driver, encode the reply. What
// the code stands on is host-daemon/dispatch/dispatcher.h.
#include <fmt/format.h>

#include "protocol/gen/model.h"

namespace smolvm::gen {
namespace {

const Param* ParamOf(const CallModel& call, const std::string& name) {
  for (const Param& param : call.params) {
    if (param.name == name) return &param;
  }
  return nullptr;
}

// What the driver answers to a handle that is none. INVALID_HANDLE is not among the results that
// are documented for pools.
const char* ErrorOfHandle(api::Handle handle) {
  switch (handle) {
    case api::CONTEXT:
      return "CUDA_ERROR_INVALID_CONTEXT";
    case api::MEM_POOL:
      return "CUDA_ERROR_INVALID_VALUE";
    default:
      return "CUDA_ERROR_INVALID_HANDLE";
  }
}

// Declares a local variable of the C parameter's name and type, filled from the request.
std::string DeclareInput(const Param& param, const Field& field) {
  const std::string& n = param.name;
  if (field.options.handle()) {
    const char* error = ErrorOfHandle(field.options.handle());
    return fmt::format("  {1} {0} = nullptr;\n  if (!d.handles().Find(in.{0}, &{0})) return {2};\n",
                       n, param.type, error);
  }
  if (field.string()) return fmt::format("  const char* {0} = in.{0}.c_str();\n", n);
  if (field.pod()) {
    return fmt::format(
        "  {1} {0}_value;\n  if (in.{0}.size() != sizeof {0}_value) return "
        "session::Handler::kMalformed;\n"
        "  memcpy(&{0}_value, in.{0}.data(), sizeof {0}_value);\n  {1}* {0} = &{0}_value;\n",
        n, param.pointee());
  }
  return fmt::format("  const {1} {0} = static_cast<{1}>(in.{0});\n", n, param.type);
}

std::string CheckInput(const CallModel& call, const Field& field) {
  if (field.options.extent().empty()) return "";
  return fmt::format("  if (!d.memory().Allows({0}, {1})) return CUDA_ERROR_INVALID_VALUE;\n",
                     field.name(), Widen(call, field.options.extent()));
}

std::string Quota(const CallModel& call) {
  std::string text;
  for (const Field& field : call.reply_fields) {
    if (field.options.mints())
      text += "  if (!d.handles().HasRoom()) return CUDA_ERROR_OUT_OF_MEMORY;\n";
    if (field.options.mints_memory().empty()) continue;
    const std::string& least = field.options.mints_at_least();
    text += fmt::format("  if (!d.memory().Fits({})) return CUDA_ERROR_OUT_OF_MEMORY;\n",
                        Widen(call, least.empty() ? field.options.mints_memory() : least));
  }
  return text;
}

std::string StoreResult(const Param& param, const Field& field) {
  const std::string& n = param.name;
  if (field.options.mints()) return fmt::format("  out->{0} = d.Mint({0}_value);\n", n);
  if (field.options.handle()) return fmt::format("  out->{0} = d.IdOf({0}_value);\n", n);
  if (field.pod()) {
    return fmt::format(
        "  out->{0}.assign(reinterpret_cast<const char*>(&{0}_value), sizeof {0}_value);\n", n);
  }
  return fmt::format("  out->{0} = static_cast<decltype(out->{0})>({0}_value);\n", n);
}

std::string AfterSuccess(const CallModel& call) {
  std::string text;
  for (const Field& field : call.reply_fields) {
    text += StoreResult(*ParamOf(call, field.name()), field);
    if (!field.options.mints_memory().empty()) {
      text += fmt::format("  if (!d.MemoryMinted(*{}, {})) return CUDA_ERROR_OUT_OF_MEMORY;\n",
                          field.name(), field.options.mints_memory());
    }
  }
  for (const Field& field : call.request_fields) {
    if (field.options.ends()) text += fmt::format("  d.handles().Remove(in.{});\n", field.name());
    if (field.options.frees_memory())
      text += fmt::format("  d.memory().Remove({});\n", field.name());
  }
  return text;
}

std::string Blocking(const CallModel& call) {
  switch (call.options.blocks()) {
    case api::ON_STREAM:
      return "  d.BeforeWaitingForStream(call, hStream);\n";
    case api::ON_EVENT:
      return "  d.BeforeWaitingForEvent(call, hEvent);\n";
    case api::ON_CONTEXT:
      return "  d.BeforeWaitingForContext(call);\n";
    case api::MAY:
      return "  call.AboutToBlock();\n";
    default:
      return "";
  }
}

std::string Generic(const CallModel& call) {
  std::string text;
  if (call.variant.empty()) {
    text += fmt::format("  const auto entry = d.driver().{};\n", call.name);
  } else {
    text += fmt::format(
        "  const auto entry = call.per_thread_stream() ? d.driver().{0}{1} : d.driver().{0};\n",
        call.name, call.variant);
  }
  text += fmt::format("  if (!entry) return d.NotInDriver(\"{}\");\n", call.name);
  for (const Param& param : call.params) {
    if (const Field* field = call.request_field(param.name)) {
      text += DeclareInput(param, *field);
    } else {
      text += fmt::format("  {1} {0}_value{{}};\n  {1}* {0} = &{0}_value;\n", param.name,
                          param.pointee());
    }
  }
  for (const Field& field : call.request_fields) text += CheckInput(call, field);
  text += Quota(call) + Blocking(call);
  text += fmt::format("  const CUresult result = entry({});\n", call.param_names());
  text += "  if (result != CUDA_SUCCESS) return result;\n";
  return text + AfterSuccess(call) + "  return CUDA_SUCCESS;\n";
}

}  // namespace

std::string EmitDispatch(const Section& section) {
  std::string text =
      Banner() + fmt::format(
                     "#include \"protocol/api/{}.wire.h\"\n\n#include <cstring>\n\n"
                     "#include \"host-daemon/dispatch/dispatcher.h\"\n"
                     "#include \"protocol/api/host_manual.h\"\n\nnamespace smolvm::dispatch {{\n",
                     section.name);
  for (const CallModel& call : section.calls) {
    if (call.local()) continue;
    const bool by_hand = call.by_hand_on_host();
    if (!by_hand) {
      text += fmt::format(
          "\nstatic uint32_t Run_{}(Dispatcher& d, [[maybe_unused]] session::Call& call, "
          "[[maybe_unused]] const api::{}& in,\n    [[maybe_unused]] api::{}* out) {{\n{}}}\n",
          call.name, call.request, call.reply, Generic(call));
    }
    text += fmt::format(
        "\nuint32_t Serve_{0}(Dispatcher& d, session::Call& call) {{\n  api::{1} in;\n"
        "  if (!Decode(call.args(), &in)) return session::Handler::kMalformed;\n  api::{2} out;\n"
        "  const uint32_t result = {3}{0}(d, call, in, &out);\n"
        "  if (result == CUDA_SUCCESS) Encode(out, &call.reply());\n  return result;\n}}\n",
        call.name, call.request, call.reply, by_hand ? "manual::" : "Run_");
  }
  return text + "\n}  // namespace smolvm::dispatch\n";
}

std::string EmitHostManual(const Model& model) {
  std::string text =
      Banner() +
      "// What host-daemon/dispatch writes by hand. Each returns a CUresult, or "
      "session::Handler::kMalformed.\n#pragma once\n\n#include \"host-daemon/session/call.h\"\n";
  for (const Section& section : model.sections)
    text += "#include \"protocol/api/" + section.name + ".wire.h\"\n";
  text += "\nnamespace smolvm::dispatch {\n\nclass Dispatcher;\n\nnamespace manual {\n\n";
  for (const CallModel* call : model.calls()) {
    if (call->local() || !call->by_hand_on_host()) continue;
    text += fmt::format(
        "uint32_t {}(Dispatcher& d, session::Call& call, const api::{}& in, api::{}* out);\n",
        call->name, call->request, call->reply);
  }
  return text + "\n}  // namespace manual\n}  // namespace smolvm::dispatch\n";
}

std::string EmitDispatchTable(const Model& model) {
  std::string text =
      Banner() +
      "#include \"host-daemon/dispatch/dispatch_table.h\"\n\nnamespace smolvm::dispatch {\n\n";
  for (const CallModel* call : model.calls()) {
    if (!call->local())
      text += fmt::format("uint32_t Serve_{}(Dispatcher& d, session::Call& call);\n", call->name);
  }
  text += "\nconst CallRow kCalls[] = {\n";
  for (const CallModel* call : model.calls()) {
    if (call->local()) continue;
    text += fmt::format("    {{{}, {{\"{}\", {}, {}u, {}, {}}}, Serve_{}}},\n", call->id(),
                        call->name, "wire::kMaxArgsBytes", call->options.max_bulk(), call->async(),
                        !call->reply_fields.empty() || call->name.starts_with("cuMemcpyDtoH") ||
                            call->name.starts_with("cuMemcpy3D"),
                        call->name);
  }
  return text +
         "};\nconst size_t kCallCount = sizeof kCalls / sizeof kCalls[0];\n\n}  // namespace "
         "smolvm::dispatch\n";
}

}  // namespace smolvm::gen
