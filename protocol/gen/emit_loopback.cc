// Tests: one case for each call that is generated on both sides. The program's call must arrive at
// the driver with its arguments, and the driver's results must arrive at the program. What the
// cases stand on is tests/loopback/host.h.
#include <fmt/format.h>

#include "protocol/gen/model.h"

namespace smolvm::gen {
namespace {

// An argument, and what the driver must see of it.
std::string DeclareArgument(const Param& param, const Field& field, int number) {
  const std::string& n = param.name;
  if (field.options.device()) return fmt::format("  {} {} = 0;\n", param.type, n);
  if (field.options.handle()) {
    return fmt::format("  {1} {0} = host.Handle<{1}>({2});\n", n, param.type, number);
  }
  if (!field.options.extent().empty())
    return fmt::format("  {} {} = host.DeviceMemory();\n", param.type, n);
  if (field.string()) return fmt::format("  const char* {} = \"name{}\";\n", n, number);
  if (field.pod()) {
    return fmt::format(
        "  {1} {0}_value;\n  memset(&{0}_value, {2}, sizeof {0}_value);\n  {1}* {0} = "
        "&{0}_value;\n",
        n, param.pointee(), number);
  }
  return fmt::format("  {1} {0} = static_cast<{1}>({2});\n", n, param.type, number);
}

std::string ExpectArgument(const Param& param, const Field& field, int number) {
  const std::string& n = param.name;
  if (field.options.handle())
    return fmt::format("    EXPECT_EQ(seen_{0}, Fake<{1}>({2}));\n", n, param.type, number);
  if (field.string()) return fmt::format("    EXPECT_STREQ(seen_{0}, {0});\n", n);
  if (field.pod()) return fmt::format("    EXPECT_EQ(memcmp(seen_{0}, {0}, sizeof *{0}), 0);\n", n);
  return fmt::format("    EXPECT_EQ(seen_{0}, {0});\n", n);
}

std::string ProduceResult(const Param& param, const Field& field, int number) {
  const std::string& n = param.name;
  if (field.options.handle())
    return fmt::format("    *seen_{0} = Fake<{1}>({2});\n", n, param.pointee(), number);
  if (field.options.device()) return fmt::format("    *seen_{} = 0;\n", n);
  if (!field.options.mints_memory().empty())
    return fmt::format("    *seen_{} = host.FreshMemory();\n", n);
  if (field.pod()) return fmt::format("    memset(seen_{0}, {1}, sizeof *seen_{0});\n", n, number);
  return fmt::format("    *seen_{0} = static_cast<{1}>({2});\n", n, param.pointee(), number);
}

std::string ExpectResult(const Param& param, const Field& field, int number) {
  const std::string& n = param.name;
  if (field.options.handle()) {
    return fmt::format("  EXPECT_EQ(host.Resolve({0}_result), Fake<{1}>({2}));\n", n,
                       param.pointee(), number);
  }
  if (field.options.device()) return fmt::format("  EXPECT_EQ({}_result, 0);\n", n);
  if (!field.options.mints_memory().empty())
    return fmt::format("  EXPECT_EQ({}_result, host.FreshMemory());\n", n);
  if (field.pod()) {
    return fmt::format("  EXPECT_EQ(reinterpret_cast<unsigned char*>(&{0}_result)[0], {1});\n", n,
                       number);
  }
  return fmt::format("  EXPECT_EQ({0}_result, static_cast<{1}>({2}));\n", n, param.pointee(),
                     number);
}

std::string Case(const CallModel& call, const std::string& symbol) {
  std::string declare, expect, produce, check, seen, arguments, nulls, error_names;
  int number = 3;  // handles 1 and 2 are CUDA's own streams
  for (const Param& param : call.params) {
    ++number;
    seen += fmt::format("{}[[maybe_unused]] {} seen_{}", seen.empty() ? "" : ", ", param.type,
                        param.name);
    if (const Field* field = call.request_field(param.name)) {
      declare += DeclareArgument(param, *field, number);
      expect += ExpectArgument(param, *field, number);
      arguments += (arguments.empty() ? "" : ", ") + param.name;
    } else {
      const Field& result = *call.reply_field(param.name);
      declare += fmt::format("  {} {}_result{{}};\n", param.pointee(), param.name);
      produce += ProduceResult(param, result, number);
      check += ExpectResult(param, result, number);
      arguments += fmt::format("{}&{}_result", arguments.empty() ? "" : ", ", param.name);
    }
  }
  std::string text = fmt::format(
      "\nTEST_F(Loopback, {0}) {{\n{1}  host.driver.{0} = [&]({2}) -> CUresult {{\n{3}{4}    "
      "return CUDA_SUCCESS;\n  }};\n"
      "  ASSERT_EQ({0}({5}), CUDA_SUCCESS);\n  host.Settle();\n  EXPECT_EQ(host.Count(\"{0}\"), "
      "1u);\n{6}",
      symbol, declare, seen, expect, produce, arguments, check);
  for (const Param& param : call.params) {
    const Field* field = call.request_field(param.name);
    // The handle has ended with the first call.
    if (field && field->options.ends())
      text += fmt::format("  {0} = host.Handle<{1}>(3);\n", param.name, param.type);
  }
  // An error of the driver's arrives as it is, with the next call at the latest.
  text += fmt::format(
      "  host.driver.{0} = [&]({1}) {{ return CUDA_ERROR_ECC_UNCORRECTABLE; }};\n"
      "  const CUresult failed = {0}({2});\n  EXPECT_TRUE(failed == CUDA_ERROR_ECC_UNCORRECTABLE "
      "|| "
      "(failed == CUDA_SUCCESS && host.Settle() == CUDA_ERROR_ECC_UNCORRECTABLE));\n",
      symbol, seen, arguments);
  for (const Param& param : call.params) {
    const Field* field = call.reply_field(param.name);
    if (!field) continue;
    std::string with_null;
    for (const Param& other : call.params) {
      const bool result = call.reply_field(other.name);
      with_null += (with_null.empty() ? "" : ", ") + (&other == &param ? "nullptr"
                                                      : result ? "&" + other.name + "_result"
                                                               : other.name);
    }
    if (field->options.nullable()) continue;
    text += fmt::format("  EXPECT_EQ({}({}), CUDA_ERROR_INVALID_VALUE);\n", symbol, with_null);
  }
  return text + "}\n";
}

}  // namespace

std::string EmitLoopbackCases(const Section& section) {
  std::string text =
      Banner() +
      "#include <gtest/gtest.h>\n\n#include <cstring>\n\n#include \"tests/loopback/host.h\"\n\n"
      "using smolvm::loopback::Fake;\nusing smolvm::loopback::Loopback;\n";
  for (const CallModel& call : section.calls) {
    if (call.local() || call.options.handwritten()) continue;
    text += Case(call, call.name);
    if (!call.variant.empty()) text += Case(call, call.name + call.variant);
  }
  return text;
}

}  // namespace smolvm::gen
