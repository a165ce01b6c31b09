// FindEscape() on IR that no emitter of ours writes: each line of it is an attempt to get out.
#include "host-daemon/emulation/codegen/isolation.h"

#include <gtest/gtest.h>
#include <llvm/AsmParser/Parser.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/SourceMgr.h>

#include <cstddef>
#include <string>

#include "host-daemon/emulation/runtime/context.h"
#include "host-daemon/emulation/runtime/helpers.h"

namespace smolvm::emulation::codegen {
namespace {

std::string At(size_t offset) { return "i64 " + std::to_string(offset); }

// A kernel that has one slot, %slot of 16 bytes, its contexts in %block and %helpers, and `body`.
std::string Kernel(const std::string& body) {
  return R"(
    declare void @elsewhere()
    declare ptr @llvm.stacksave.p0()
    declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
    declare i32 @llvm.ctpop.i32(i32)
    declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
    define internal void @own(ptr %ctx, i64 %number) { ret void }
    define void @smolvm_kernel(ptr %ctx, ptr %second, i64 %n) {
      %slot = alloca [16 x i8]
      %block_at = getelementptr i8, ptr %ctx, )" +
         At(offsetof(ThreadContext, block_context)) + R"(
      %block = load ptr, ptr %block_at
      %helpers_at = getelementptr i8, ptr %block, )" +
         At(offsetof(BlockContext, helpers)) + R"(
      %helpers = load ptr, ptr %helpers_at
      %variables_at = getelementptr i8, ptr %block, )" +
         At(offsetof(BlockContext, variables)) + R"(
      %variables = load ptr, ptr %variables_at
    )" + body +
         R"(
      ret void
    }
  )";
}

// What FindEscape() says; there are two variables.
std::string Escape(const std::string& body) {
  llvm::LLVMContext context;
  llvm::SMDiagnostic problem;
  const auto module = llvm::parseAssemblyString(Kernel(body), problem, context);
  if (module == nullptr) {
    ADD_FAILURE() << problem.getMessage().str() << " in: " << body;
    return "";
  }
  return FindEscape(*module, Isolation(2));
}

std::string FieldOf(const char* base, size_t offset, const std::string& use) {
  return "%at = getelementptr i8, ptr " + std::string(base) + ", " + At(offset) + "\n" + use;
}

std::string CallOf(Helper helper, const std::string& call) {
  return FieldOf("%helpers", static_cast<size_t>(helper) * sizeof(void*),
                 "%helper = load ptr, ptr %at\n" + call);
}

TEST(FindEscape, LetsSlotsContextsAndHelpersBe) {
  EXPECT_EQ(Escape(""), "");
  EXPECT_EQ(Escape("store i64 %n, ptr %slot"), "");
  EXPECT_EQ(Escape("%last = getelementptr i8, ptr %slot, i64 8\n store i64 %n, ptr %last"), "");
  EXPECT_EQ(Escape("%bits = call i32 @llvm.ctpop.i32(i32 5)"), "");
  EXPECT_EQ(Escape("call void @own(ptr %ctx, i64 %n)"), "");
  EXPECT_EQ(Escape(FieldOf("%ctx", offsetof(ThreadContext, local_used), "store i64 %n, ptr %at")),
            "");
  EXPECT_EQ(Escape(FieldOf("%variables", 8, "%v = load i64, ptr %at")), "");
  EXPECT_EQ(Escape(CallOf(Helper::kYield, "call void %helper(ptr %ctx)")), "");
}

TEST(FindEscape, FindsAddressesThatNobodyChecked) {
  for (const char* body : {
           "%p = inttoptr i64 %n to ptr\n %v = load i32, ptr %p",
           "%p = inttoptr i64 %n to ptr",
           "%v = load i32, ptr inttoptr (i64 4096 to ptr)",
           "store i32 1, ptr null",
           "store i32 1, ptr @elsewhere",
           "%v = load i32, ptr %second",
           "%p = getelementptr i8, ptr %slot, i64 %n\n store i8 1, ptr %p",
           "%p = getelementptr i8, ptr %ctx, i64 %n\n %v = load i64, ptr %p",
           "%old = atomicrmw add ptr inttoptr (i64 64 to ptr), i32 1 monotonic",
           "%old = cmpxchg ptr %second, i32 0, i32 1 monotonic monotonic",
           "call void @llvm.memcpy.p0.p0.i64(ptr %slot, ptr %second, i64 8, i1 false)",
           "call void @llvm.memcpy.p0.p0.i64(ptr %second, ptr %slot, i64 8, i1 false)",
           "%c = icmp eq i64 %n, 0\n %p = select i1 %c, ptr %slot, ptr %ctx\n store i8 1, ptr %p",
       }) {
    EXPECT_NE(Escape(body), "") << body;
  }
}

TEST(FindEscape, FindsWhatLeavesASlotOrAContext) {
  for (const std::string& body : {
           std::string("%p = getelementptr i8, ptr %slot, i64 9\n store i64 %n, ptr %p"),
           std::string("%p = getelementptr i8, ptr %slot, i64 -8\n store i64 %n, ptr %p"),
           std::string("%p = getelementptr i8, ptr %slot, i64 16\n store i8 1, ptr %p"),
           std::string("call void @llvm.memcpy.p0.p0.i64(ptr %slot, ptr %slot, i64 17, i1 false)"),
           std::string("call void @llvm.memcpy.p0.p0.i64(ptr %slot, ptr %slot, i64 %n, i1 false)"),
           FieldOf("%ctx", sizeof(ThreadContext), "%v = load i8, ptr %at"),
           FieldOf("%ctx", sizeof(ThreadContext) - 4, "%v = load i64, ptr %at"),
           FieldOf("%block", sizeof(BlockContext), "%v = load i8, ptr %at"),
           FieldOf("%variables", 16, "%v = load i64, ptr %at"),
           FieldOf("%helpers", static_cast<size_t>(Helper::kCount) * 8, "%v = load i64, ptr %at"),
       }) {
    EXPECT_NE(Escape(body), "") << body;
  }
}

TEST(FindEscape, FindsWritesToWhatTheRuntimeBelieves) {
  for (const auto& [base, offset] : {
           std::pair("%ctx", offsetof(ThreadContext, local_base)),
           std::pair("%ctx", offsetof(ThreadContext, block_context)),
           std::pair("%ctx", offsetof(ThreadContext, sp)),
           std::pair("%ctx", offsetof(ThreadContext, local_used) + 4),
           std::pair("%block", offsetof(BlockContext, shared_bytes)),
           std::pair("%block", offsetof(BlockContext, local_bytes)),
           std::pair("%block", offsetof(BlockContext, helpers)),
           std::pair("%helpers", size_t{0}),
           std::pair("%variables", size_t{0}),
       }) {
    EXPECT_NE(Escape(FieldOf(base, offset, "store i64 %n, ptr %at")), "") << base << offset;
  }
}

TEST(FindEscape, FindsPointersThatBecomeValues) {
  for (const char* body : {
           "%v = ptrtoint ptr %slot to i64",
           "store ptr %ctx, ptr %slot",
           "%v = load ptr, ptr %slot",
           "%v = load ptr, ptr %slot\n call void %v()",
           "%c = icmp ult ptr %slot, %ctx",
           "%v = insertelement <2 x ptr> poison, ptr %slot, i32 0",
           "%v = addrspacecast ptr %slot to ptr addrspace(1)",
       }) {
    EXPECT_NE(Escape(body), "") << body;
  }
}

TEST(FindEscape, FindsCallsOfWhatIsNotTheKernels) {
  for (const std::string& body : {
           std::string("call void @elsewhere()"),
           std::string("call void %second()"),
           std::string("%p = inttoptr i64 %n to ptr\n call void %p()"),
           std::string("call void asm sideeffect \"syscall\", \"\"()"),
           std::string("%s = call ptr @llvm.stacksave.p0()"),
           std::string("call void @llvm.prefetch.p0(ptr %slot, i32 0, i32 3, i32 1)"),
           std::string("call void @own(ptr %slot, i64 %n)"),
           std::string("call void @own(i64 %n, i64 %n)"),
           // By another signature, with another context, and beyond the table.
           CallOf(Helper::kYield, "call void %helper(ptr %ctx, i64 %n)"),
           CallOf(Helper::kYield, "call i64 %helper(ptr %ctx)"),
           CallOf(Helper::kYield, "call void %helper(ptr %slot)"),
           CallOf(Helper::kYield, "call void %helper(i64 %n)"),
           CallOf(Helper::kCount, "call void %helper(ptr %ctx)"),
           FieldOf("%helpers", 4, "%helper = load ptr, ptr %at\n call void %helper(ptr %ctx)"),
       }) {
    EXPECT_NE(Escape(body), "") << body;
  }
}

TEST(FindEscape, FindsStackOfASizeTheProgramChooses) {
  EXPECT_NE(Escape("%more = alloca i8, i64 %n"), "");
  EXPECT_NE(Escape("br label %next\nnext:\n %more = alloca i8"), "");
}

TEST(FindEscape, FindsJumpsToComputedPlaces) {
  EXPECT_NE(Escape("indirectbr ptr %second, [label %next]\nnext:"), "");
}

TEST(FindEscape, FindsGlobalsThatCanBeWritten) {
  llvm::LLVMContext context;
  llvm::SMDiagnostic problem;
  const auto module = llvm::parseAssemblyString("@g = global i64 0", problem, context);
  ASSERT_NE(module, nullptr);
  EXPECT_NE(FindEscape(*module, Isolation(0)), "");
}

}  // namespace
}  // namespace smolvm::emulation::codegen
