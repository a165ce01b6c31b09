// Which values parameters may have (call_options.proto, Values): the checks of them for the
// emulation device and for what the guest answers, and the list of calls that tests drive with
// every value.
#include <fmt/format.h>

#include <sstream>
#include <stdexcept>

#include "protocol/gen/model.h"

namespace smolvm::gen {
namespace {

std::vector<std::string> Words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// "A B" → "A | B".
std::string Ored(const std::string& constants) {
  std::string text;
  for (const std::string& constant : Words(constants))
    text += (text.empty() ? "" : " | ") + constant;
  return text;
}

// "A..C D", "x" → "(x >= A && x <= C) || x == D".
std::string IsAmong(const std::string& constants, const std::string& name) {
  std::string text;
  for (const std::string& constant : Words(constants)) {
    const size_t dots = constant.find("..");
    text += text.empty() ? "" : " || ";
    text += dots == std::string::npos
                ? fmt::format("{} == {}", name, constant)
                : fmt::format("({0} >= {1} && {0} <= {2})", name, constant.substr(0, dots),
                              constant.substr(dots + 2));
  }
  return text;
}

const Param& ParamOf(const CallModel& call, const std::string& name) {
  for (const Param& param : call.params) {
    if (param.name == name) return param;
  }
  throw std::runtime_error(call.name + ": values are given for " + name +
                           ", which is no parameter");
}

std::string ValueType(const Param& param) { return param.pointer() ? param.pointee() : param.type; }

std::string Unknown(const api::Values& values) {
  const std::string& n = values.param();
  if (!values.among().empty())
    return fmt::format("  if (!({})) return CUDA_ERROR_INVALID_VALUE;\n",
                       IsAmong(values.among(), n));
  std::string text = fmt::format("  if (({} & ~Bits({})) != 0) return CUDA_ERROR_INVALID_VALUE;\n",
                                 n, Ored(values.flags()));
  if (!values.exclusive().empty())
    text += fmt::format("  if (!AtMostOne({} & Bits({}))) return CUDA_ERROR_INVALID_VALUE;\n", n,
                        Ored(values.exclusive()));
  return text;
}

std::string Refused(const api::Values& values) {
  const std::string& n = values.param();
  const std::string condition =
      values.flags().empty() ? IsAmong(values.refused(), n)
                             : fmt::format("({} & Bits({})) != 0", n, Ored(values.refused()));
  return fmt::format(
      "  if ({}) return {};\n", condition,
      values.refused_with().empty() ? "CUDA_ERROR_NOT_SUPPORTED" : values.refused_with());
}

void Check(const CallModel& call, const api::Values& values) {
  ParamOf(call, values.param());
  if (values.flags().empty() == values.among().empty())
    throw std::runtime_error(call.name + ": " + values.param() +
                             " has either flags or values among some");
}

}  // namespace

std::string EmitValues(const Model& model) {
  std::string check, refuse;
  for (const CallModel* call : model.calls()) {
    std::string parameters, unknown, refused;
    for (const api::Values& values : call->options.values()) {
      Check(*call, values);
      parameters += fmt::format("{}{} {}", parameters.empty() ? "" : ", ",
                                ValueType(ParamOf(*call, values.param())), values.param());
      unknown += Unknown(values);
      if (!values.refused().empty()) refused += Refused(values);
    }
    const std::string head = fmt::format("inline CUresult {}({}) {{\n", call->name, parameters);
    if (!unknown.empty()) check += head + unknown + "  return CUDA_SUCCESS;\n}\n";
    if (!refused.empty()) refuse += head + refused + "  return CUDA_SUCCESS;\n}\n";
  }
  return Banner() +
         "// Which values calls take. Unknown ones are told with missing pointers, before any "
         "state "
         "is looked at;\n"
         "// those that CUDA knows and that are not served here, behind all else.\n"
         "#pragma once\n#include <cuda.h>\n\n#include <cstdint>\n\nnamespace smolvm::api {\n\n"
         "constexpr uint64_t Bits(uint64_t constants) { return constants; }\n"
         "constexpr bool AtMostOne(uint64_t bits) { return (bits & (bits - 1)) == 0; }\n\n"
         "namespace check {\n" +
         check + "}  // namespace check\n\nnamespace refuse {\n" + refuse +
         "}  // namespace refuse\n\n}  // namespace smolvm::api\n";
}

std::string EmitProbes(const Model& model) {
  std::string text = Banner() + "// PROBE(function, names of its parameters …)\n";
  for (const CallModel* call : model.calls()) {
    text += "PROBE(" + call->name;
    for (const Param& param : call->params) text += ", \"" + param.name + "\"";
    text += ")\n";
  }
  return text;
}

}  // namespace smolvm::gen
