#include "host-daemon/emulation/ptx/link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/emulation_ptx/source.h"

namespace smolvm::emulation::ptx {
namespace {

using ::testing::HasSubstr;

std::vector<LinkInput> Inputs(const std::vector<std::string>& texts) {
  std::vector<LinkInput> inputs;
  for (const std::string& text : texts) {
    inputs.push_back(
        {"input " + std::to_string(inputs.size() + 1), ParseOrFail(std::string(kHeader) + text)});
  }
  return inputs;
}

Module LinkOrFail(const std::vector<std::string>& texts) {
  Module module;
  Diagnostic diagnostic;
  EXPECT_TRUE(Link(Inputs(texts), &module, &diagnostic)) << diagnostic.message;
  return module;
}

Diagnostic LinkError(const std::vector<std::string>& texts) {
  Module module;
  Diagnostic diagnostic;
  EXPECT_FALSE(Link(Inputs(texts), &module, &diagnostic));
  return diagnostic;
}

bool NothingIsBuiltin(std::string_view) { return false; }

const Function& FunctionNamed(const Module& module, std::string_view name) {
  for (const Function& function : module.functions) {
    if (function.name == name) return function;
  }
  ADD_FAILURE() << name;
  return module.functions[0];
}

constexpr const char* kUser = R"(
.extern .func (.param .b32 r) f(.param .b32 x);
.extern .global .u32 g;
.global .u32 mine = 1;
.visible .entry k() { .reg .b32 %r<3>; .param .b32 a; .param .b32 b; call (b), f, (a);
  ld.global.u32 %r1, [g]; ld.global.u32 %r2, [mine]; ret; })";
constexpr const char* kProvider = R"(
.global .u32 mine = 2;
.visible .global .u32 g = 5;
.visible .global .u64 pointer = f;
.visible .func (.param .b32 r) f(.param .b32 x) { .reg .b32 %r<2>; ld.global.u32 %r1, [mine]; ret; })";

TEST(Link, ResolvesAcrossModulesInEitherOrder) {
  for (const bool user_first : {true, false}) {
    const Module module =
        user_first ? LinkOrFail({kUser, kProvider}) : LinkOrFail({kProvider, kUser});
    Diagnostic diagnostic;
    EXPECT_TRUE(CheckResolved(module, NothingIsBuiltin, &diagnostic)) << diagnostic.message;
    EXPECT_EQ(module.functions.size(), 2u);
    EXPECT_EQ(module.variables.size(), 4u);  // two "mine", g, pointer
    const Function& k = FunctionNamed(module, "k");
    const Function& f = FunctionNamed(module, "f");
    EXPECT_TRUE(f.has_body);
    EXPECT_EQ(&module.functions[k.calls[0].callee.symbol.index], &f);
    const auto loaded = [&module](const Function& function, size_t n) {
      return module.variables[function.body[n].operands[1].symbol.index];
    };
    EXPECT_EQ(loaded(k, 1).initial[0], std::byte{5});
    EXPECT_EQ(loaded(k, 2).initial[0], std::byte{1});
    EXPECT_EQ(loaded(f, 0).initial[0], std::byte{2});
    for (const Variable& variable : module.variables) {
      if (variable.name == "pointer") {
        EXPECT_EQ(&module.functions[variable.relocations[0].symbol.index], &f);
      }
    }
  }
}

TEST(Link, NamesWhatIsUndefined) {
  const Module module = LinkOrFail({kUser, ""});
  Diagnostic diagnostic;
  EXPECT_FALSE(CheckResolved(module, NothingIsBuiltin, &diagnostic));
  EXPECT_EQ(diagnostic.code, Diagnostic::Code::kUnresolved);
  EXPECT_THAT(diagnostic.message, HasSubstr("undefined reference to 'g'"));
  const Module unused = LinkOrFail({".extern .global .u32 g;", ".extern .func f();"});
  EXPECT_TRUE(CheckResolved(unused, NothingIsBuiltin, &diagnostic));
  const Module dynamic = ParseOrFail(Kernel("mov.u32 %r1, s;", ".extern .shared .b8 s[];\n"));
  EXPECT_TRUE(CheckResolved(dynamic, NothingIsBuiltin, &diagnostic));
}

TEST(Link, RefusesTwoDefinitions) {
  const Diagnostic error = LinkError({kProvider, ".visible .global .u32 g = 1;"});
  EXPECT_EQ(error.code, Diagnostic::Code::kDuplicate);
  EXPECT_THAT(error.message, HasSubstr("'g' is defined twice"));
  EXPECT_THAT(error.message, HasSubstr("'input 2'"));
  LinkError({".entry k() { ret; }", ".entry k() { ret; }"});
  LinkError({".visible .global .u32 g;", ".visible .const .u32 g;"});
}

TEST(Link, PrefersStrongToWeakAndTheLargestCommon) {
  const auto value = [](const Module& module) { return module.variables[0].initial[0]; };
  const char* const kWeak1 = ".weak .global .u32 g = 1;";
  const char* const kWeak2 = ".weak .global .u32 g = 2;";
  const char* const kStrong = ".visible .global .u32 g = 3;";
  EXPECT_EQ(value(LinkOrFail({kWeak1, kWeak2})), std::byte{1});
  EXPECT_EQ(value(LinkOrFail({kWeak1, kStrong, kWeak2})), std::byte{3});
  const Module common = LinkOrFail({".common .global .u8 g[4];", ".common .global .u8 g[16];"});
  ASSERT_EQ(common.variables.size(), 1u);
  EXPECT_EQ(common.variables[0].bytes, 16u);
}

TEST(Link, VerifiesCallsAgainstTheDefinition) {
  const Diagnostic error =
      LinkError({kUser, ".visible .global .u32 g; .visible .func f() { ret; }"});
  EXPECT_THAT(error.message, HasSubstr("results of a call do not fit"));
}

}  // namespace
}  // namespace smolvm::emulation::ptx
