#include "host-daemon/emulation/ptx/parse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>

#include "tests/unit/emulation_ptx/source.h"

namespace smolvm::emulation::ptx {
namespace {

using Kind = Operand::Kind;

TEST(Parse, ReadsTheHeader) {
  const Module module =
      ParseOrFail("// c\n.version 8.5\n.target sm_90a, debug\n.address_size 64\n");
  EXPECT_EQ(module.version, 85);
  EXPECT_EQ(module.target, 90);
  EXPECT_EQ(module.target_suffix, 'a');
  EXPECT_TRUE(module.debug);
}

TEST(Parse, ReadsTypesAndModifiers) {
  const Instruction add = FirstOf("add.rz.ftz.sat.f32 %f1, %f2, %f3;");
  EXPECT_EQ(add.opcode, Opcode::kAdd);
  EXPECT_EQ(add.type(), Type::kF32);
  EXPECT_EQ(add.modifiers.rounding, Rounding::kRz);
  EXPECT_TRUE(add.modifiers.ftz);
  EXPECT_TRUE(add.modifiers.sat);
  const Instruction cvt = FirstOf("cvt.rzi.s32.f64 %r1, %d1;");
  EXPECT_EQ(cvt.type(), Type::kS32);
  EXPECT_EQ(cvt.source_type(), Type::kF64);
  EXPECT_EQ(cvt.modifiers.rounding, Rounding::kRzi);
}

TEST(Parse, TellsWordsApartByTheInstruction) {
  EXPECT_EQ(FirstOf("mul.lo.u32 %r1, %r2, %r3;").modifiers.half, Half::kLo);
  EXPECT_EQ(FirstOf("setp.lo.u32 %p1, %r2, %r3;").modifiers.compare, Compare::kLo);
  EXPECT_EQ(FirstOf("setp.lt.and.u32 %p1, %r2, %r3, %p2;").modifiers.boolean, Bool::kAnd);
  EXPECT_EQ(FirstOf("atom.global.and.b32 %r1, [%rd1], %r3;").modifiers.reduction, Reduction::kAnd);
  EXPECT_EQ(FirstOf("setp.nan.f32 %p1, %f1, %f2;").modifiers.compare, Compare::kNan);
  EXPECT_TRUE(FirstOf("min.NaN.f32 %f1, %f1, %f2;").modifiers.nan);
  EXPECT_EQ(FirstOf("shf.l.clamp.b32 %r1, %r2, %r3, 4;").modifiers.clamp, Clamp::kClamp);
}

TEST(Parse, TakesTheLongestOpcode) {
  EXPECT_EQ(FirstOf("bar.warp.sync 0xffffffff;").opcode, Opcode::kBarWarpSync);
  EXPECT_EQ(FirstOf("barrier.sync 0;").opcode, Opcode::kBarSync);
  EXPECT_FALSE(FirstOf("barrier.sync 0;").modifiers.aligned);
  EXPECT_TRUE(FirstOf("barrier.sync.aligned 0;").modifiers.aligned);
  EXPECT_TRUE(FirstOf("bar.sync 0;").modifiers.aligned);
  EXPECT_EQ(FirstOf("cp.async.commit_group;").opcode, Opcode::kCpAsyncCommitGroup);
  const Instruction copy = FirstOf("cp.async.ca.shared.global.L2::128B [%r1], [%rd1], 16;");
  EXPECT_EQ(copy.opcode, Opcode::kCpAsync);
  EXPECT_EQ(copy.modifiers.space, StateSpace::kShared);
  EXPECT_EQ(copy.modifiers.source_space, StateSpace::kGlobal);
}

TEST(Parse, ReadsMemoryOperands) {
  const Instruction ld =
      FirstOf("ld.global.nc.L1::no_allocate.L2::128B.v2.f32 {%f1, _}, [%rd1+-8];");
  EXPECT_TRUE(ld.modifiers.nc);
  EXPECT_EQ(ld.modifiers.vector, 2);
  ASSERT_EQ(ld.operands.size(), 2u);
  ASSERT_EQ(ld.operands[0].kind, Kind::kVector);
  EXPECT_EQ(ld.ElementsOf(ld.operands[0])[0].kind, Kind::kRegister);
  EXPECT_EQ(ld.ElementsOf(ld.operands[0])[1].kind, Kind::kSink);
  EXPECT_EQ(ld.operands[1].base, Operand::AddressBase::kRegister);
  EXPECT_EQ(ld.operands[1].offset, -8);
  const Instruction param = FirstOf("ld.param.u64 %rd1, [p];");
  EXPECT_EQ(param.operands[1].base, Operand::AddressBase::kSymbol);
  EXPECT_EQ(param.operands[1].symbol, (Symbol{SymbolKind::kParam, 0}));
  const Instruction acquire = FirstOf("ld.acquire.gpu.global.u32 %r1, [%rd1+4-2];");
  EXPECT_EQ(acquire.modifiers.order, Order::kAcquire);
  EXPECT_EQ(acquire.modifiers.scope, Scope::kGpu);
  EXPECT_EQ(acquire.operands[1].offset, 2);
  EXPECT_EQ(FirstOf("ld.mmio.relaxed.sys.global.u32 %r1, [%rd1];").modifiers.order, Order::kMmio);
}

TEST(Parse, ReadsGroups) {
  const Instruction tex =
      FirstOf("tex.level.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f5, %f6}], %f7;");
  EXPECT_EQ(tex.modifiers.geometry, Geometry::k2d);
  ASSERT_EQ(tex.operands.size(), 3u);
  ASSERT_EQ(tex.operands[1].kind, Kind::kGroup);
  const auto group = tex.ElementsOf(tex.operands[1]);
  ASSERT_EQ(group.size(), 2u);
  EXPECT_EQ(group[0].kind, Kind::kAddress);
  ASSERT_EQ(group[1].kind, Kind::kVector);
  EXPECT_EQ(tex.ElementsOf(group[1]).size(), 2u);
}

TEST(Parse, ReadsImmediates) {
  const auto bits = [](std::string_view value, Type type) {
    const Instruction mov = FirstOf(std::string(type == Type::kF32   ? "mov.f32 %f1, "
                                                : type == Type::kF64 ? "mov.f64 %d1, "
                                                                     : "mov.b64 %rd1, ") +
                                    std::string(value) + ";");
    return ImmediateBits(mov.operands[1], type);
  };
  EXPECT_EQ(bits("-1", Type::kB64), UINT64_MAX);
  EXPECT_EQ(bits("0x7fffffffffffffff", Type::kB64), uint64_t{INT64_MAX});
  EXPECT_EQ(bits("18446744073709551615U", Type::kB64), UINT64_MAX);
  EXPECT_EQ(bits("017", Type::kB64), 15u);
  EXPECT_EQ(bits("0b101", Type::kB64), 5u);
  EXPECT_EQ(bits("WARP_SZ", Type::kB64), 32u);
  EXPECT_EQ(bits("(3+4)*2-1", Type::kB64), 13u);
  EXPECT_EQ(bits("1<<40|3", Type::kB64), (uint64_t{1} << 40) | 3);
  EXPECT_EQ(bits("-7/2", Type::kB64), static_cast<uint64_t>(-3));
  EXPECT_EQ(bits("-9223372036854775807-1", Type::kB64), uint64_t{1} << 63);
  EXPECT_EQ(bits("1>2?10:20", Type::kB64), 20u);
  EXPECT_EQ(bits("(!0)+~0", Type::kB64), 0u);
  EXPECT_EQ(bits("(.u64)-1>>60", Type::kB64), 15u);
  EXPECT_EQ(bits("0f3F800000", Type::kF32), std::bit_cast<uint32_t>(1.0f));
  EXPECT_EQ(bits("1.5", Type::kF32), std::bit_cast<uint32_t>(1.5f));
  EXPECT_EQ(bits("1e3", Type::kF64), std::bit_cast<uint64_t>(1000.0));
  EXPECT_EQ(bits("0d3FF0000000000000", Type::kF64), std::bit_cast<uint64_t>(1.0));
  EXPECT_EQ(bits("0f3F800000", Type::kF64), std::bit_cast<uint64_t>(1.0));
  EXPECT_EQ(bits("-1.0", Type::kF32), std::bit_cast<uint32_t>(-1.0f));
  EXPECT_EQ(bits("0f7FC00001", Type::kF32), 0x7FC00001u);
}

TEST(Parse, ReadsSpecialRegisters) {
  const Instruction tid = FirstOf("mov.u32 %r1, %tid.y;");
  EXPECT_EQ(tid.operands[1].special(), Special::kTid);
  EXPECT_EQ(tid.operands[1].component, 1);
  const Instruction env = FirstOf("mov.b32 %r1, %envreg12;");
  EXPECT_EQ(env.operands[1].special(), Special::kEnvreg);
  EXPECT_EQ(env.operands[1].component, 12);
  EXPECT_EQ(FirstOf("mov.u64 %rd1, %clock64;").operands[1].special(), Special::kClock64);
  EXPECT_EQ(FirstOf("mov.u64 %rd1, %pm3_64;").operands[1].component, 3);
  EXPECT_EQ(FirstOf("mov.u32 %r1, %lanemask_lt;").operands[1].special(), Special::kLanemaskLt);
}

TEST(Parse, ReadsGuardsAndSecondDestinations) {
  const Instruction guarded = FirstOf("@!%p3 setp.eq.u32 %p1|%p2, %r1, 7;");
  EXPECT_TRUE(guarded.guarded());
  EXPECT_TRUE(guarded.guard_negated);
  EXPECT_EQ(guarded.second_destination.kind, Kind::kRegister);
  EXPECT_EQ(guarded.operands.size(), 3u);
  EXPECT_EQ(FirstOf("elect.sync _|%p1, 0xffffffff;").operands[0].kind, Kind::kSink);
  EXPECT_TRUE(FirstOf("vote.sync.any.pred %p1, !%p2, 0xffffffff;").operands[1].negated);
}

TEST(Parse, JoinsMnemonicsThatAreWrittenApart) {
  const Instruction add = FirstOf("add /* comment */ .s32 %r1, %r2, %r3;");
  EXPECT_EQ(add.type(), Type::kS32);
}

TEST(Parse, LiftsScopes) {
  const Module module = ParseOrFail(
      Kernel("mov.u32 %r1, 1;\n{ .reg .b32 %r1; .reg .b32 t; mov.u32 %r1, 2; mov.u32 t, 3; }\n"
             "{ .reg .b32 t; mov.u32 t, 4; }\nmov.u32 %r1, 5;"));
  const Function& f = module.functions[0];
  ASSERT_EQ(f.body.size(), 6u);  // with the implicit ret
  EXPECT_EQ(f.body[0].operands[0].index, f.body[4].operands[0].index);
  EXPECT_NE(f.body[0].operands[0].index, f.body[1].operands[0].index);
  EXPECT_NE(f.body[2].operands[0].index, f.body[3].operands[0].index);
}

TEST(Parse, MakesRegistersOfRangesWhenTheyAreUsed) {
  const Module module = ParseOrFail(Kernel(
      ".reg .b32 %x<4000000000>; .reg .b32 %x1<10>; mov.u32 %x3999999999, 1; mov.u32 %x15, 2;"));
  const Function& f = module.functions[0];
  ASSERT_EQ(f.registers.size(), 2u);
  EXPECT_EQ(NameOf(f.registers[0]), "%x3999999999");
  EXPECT_EQ(NameOf(f.registers[1]), "%x15");
}

TEST(Parse, ReadsVectorRegisters) {
  const Module module =
      ParseOrFail(Kernel(".reg .v4 .f32 v; ld.global.v4.f32 v, [%rd1]; add.f32 %f1, v.x, v.w;"));
  const Function& f = module.functions[0];
  ASSERT_EQ(f.body[0].operands[0].count, 4u);
  EXPECT_EQ(f.body[1].operands[2].index, f.body[0].ElementsOf(f.body[0].operands[0])[3].index);
}

TEST(Parse, ReadsRangesOfVectorRegisters) {
  const Module module = ParseOrFail(
      Kernel(".reg .v2 .b32 %v<3>; mov.b32 %v2.y, %v0.x; ld.global.v2.b32 %v2, [%rd1];"));
  const Function& f = module.functions[0];
  ASSERT_EQ(f.body[1].operands[0].count, 2u);
  EXPECT_EQ(f.body[0].operands[0].index, f.body[1].ElementsOf(f.body[1].operands[0])[1].index);
}

TEST(Parse, TakesAListOfOneForItsMember) {
  const Instruction ld = FirstOf("ld.global.b32 { %r1 }, [%rd1];");
  EXPECT_TRUE(ld.operands[0].is_register());
  EXPECT_TRUE(ld.elements.empty());
  const Instruction tex = FirstOf("tex.1d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f5}];");
  EXPECT_TRUE(tex.ElementsOf(tex.operands[1])[1].is_register());
}

TEST(Parse, LeavesCachePoliciesOut) {
  const Instruction ld = FirstOf("ld.global.L2::cache_hint.b32 %r1, [%rd1].unified, %rd2;");
  EXPECT_TRUE(ld.modifiers.cache_hint);
  EXPECT_EQ(ld.operands.size(), 2u);
  const Instruction copy =
      FirstOf("cp.async.ca.shared.global.L2::cache_hint [%rd1], [%rd2], 16, %rd3;");
  EXPECT_TRUE(copy.modifiers.cache_hint);
  EXPECT_EQ(copy.operands.size(), 3u);
}

TEST(Parse, ReadsElementsOfArrays) {
  const Module module = ParseOrFail(
      Kernel("ld.global.b32 %r1, a[3]; mov.u64 %rd1, a[1+1]; ld.global.b32 %r1, a[%r2+1];",
             ".global .b32 a[8];\n"));
  const Function& f = module.functions[0];
  EXPECT_EQ(f.body[0].operands[1].kind, Kind::kAddress);
  EXPECT_EQ(f.body[0].operands[1].offset, 12);
  EXPECT_EQ(f.body[1].operands[1].kind, Kind::kSymbol);
  EXPECT_EQ(f.body[1].operands[1].offset, 8);
  // The address is computed first.
  ASSERT_EQ(f.body.size(), 7u);
  EXPECT_EQ(f.body[2].operands[1].offset, 4);
  EXPECT_EQ(f.body[5].operands[1].base, Operand::AddressBase::kRegister);
  EXPECT_EQ(f.body[5].operands[1].index, f.body[4].operands[0].index);
}

TEST(Parse, ResolvesLabelsInScopes) {
  const Module module =
      ParseOrFail(Kernel("bra END;\n{ L: @%p1 bra L; bra END; }\nL: bra L;\n"
                         "T: .branchtargets L, END;\nbrx.idx %r1, T;\nEND: ret;"));
  const Function& f = module.functions[0];
  const auto target = [&f](size_t n) { return f.labels[f.body[n].operands[0].index].instruction; };
  EXPECT_EQ(target(0), 5u);
  EXPECT_EQ(target(1), 1u);
  EXPECT_EQ(target(2), 5u);
  EXPECT_EQ(target(3), 3u);
  ASSERT_EQ(f.branch_targets.size(), 1u);
  EXPECT_THAT(f.branch_targets[0].labels, ::testing::SizeIs(2));
}

TEST(Parse, AppendsAReturnWhereTheEndCanBeReached) {
  EXPECT_EQ(ParseOrFail(Kernel("")).functions[0].body.size(), 1u);
  EXPECT_EQ(ParseOrFail(Kernel("ret;")).functions[0].body.size(), 1u);
  EXPECT_EQ(ParseOrFail(Kernel("@%p1 ret;")).functions[0].body.size(), 2u);
  EXPECT_EQ(ParseOrFail(Kernel("bra L; L:")).functions[0].body.size(), 2u);
}

TEST(Parse, LaysParametersOut) {
  const Module module = ParseOrFail(
      std::string(kHeader) +
      ".entry k(.param .u8 a, .param .u64 .ptr .global .align 4 b, .param .align 16 .b8 s[12], "
      ".param .f32 c) .maxntid 256, 2 .minnctapersm 3 .reqntid 32 .maxnreg 40 { ret; }");
  const Function& f = module.functions[0];
  ASSERT_EQ(f.params.size(), 4u);
  EXPECT_EQ(f.params[1].offset, 8u);
  EXPECT_EQ(f.params[2].offset, 16u);
  EXPECT_EQ(f.params[2].bytes, 12u);
  EXPECT_EQ(f.params[3].offset, 28u);
  EXPECT_EQ(f.param_bytes, 32u);
  EXPECT_EQ(f.max_block, (std::array<uint32_t, 3>{256, 2, 1}));
  EXPECT_EQ(f.required_block, (std::array<uint32_t, 3>{32, 1, 1}));
  EXPECT_EQ(f.min_blocks_per_sm, 3u);
  EXPECT_EQ(f.max_registers, 40u);
}

TEST(Parse, ReadsVariables) {
  const Module module = ParseOrFail(std::string(kHeader) + R"(
.func f() { ret; }
.visible .global .align 8 .b8 bytes[6] = {1, 2, 255};
.global .u16 matrix[2][3] = {{1, 2}, {3}};
.const .f32 c = 0f3F800000;
.global .attribute(.managed) .align 4 .u32 m;
.global .v4 .f32 v = {1.0, 2.0, 3.0, 4.0};
.global .u64 pointers[3] = {f, generic(matrix)+4, 0};
.global .u8 packed[4] = {0xFF(c), 0xFF00(generic(c)), 7};
.global .u32 sized[] = {1, 2, 3};
.extern .shared .align 16 .b8 dynamic[];
)");
  const auto find = [&module](std::string_view name) {
    for (const Variable& v : module.variables) {
      if (v.name == name) return v;
    }
    ADD_FAILURE() << name;
    return Variable();
  };
  EXPECT_EQ(find("bytes").bytes, 6u);
  EXPECT_EQ(find("bytes").alignment, 8u);
  EXPECT_EQ(find("bytes").initial.size(), 3u);
  EXPECT_EQ(find("bytes").linkage, Linkage::kVisible);
  const Variable matrix = find("matrix");
  EXPECT_EQ(matrix.bytes, 12u);
  ASSERT_EQ(matrix.initial.size(), 8u);
  EXPECT_EQ(matrix.initial[2], std::byte{2});
  EXPECT_EQ(matrix.initial[6], std::byte{3});
  EXPECT_EQ(find("c").space, StateSpace::kConst);
  EXPECT_TRUE(find("m").is_managed);
  EXPECT_EQ(find("v").alignment, 16u);
  EXPECT_EQ(find("v").initial.size(), 16u);
  const Variable pointers = find("pointers");
  ASSERT_EQ(pointers.relocations.size(), 2u);
  EXPECT_EQ(pointers.relocations[0].symbol.kind, SymbolKind::kFunction);
  EXPECT_EQ(pointers.relocations[1].offset, 8u);
  EXPECT_EQ(pointers.relocations[1].addend, 4);
  EXPECT_TRUE(pointers.relocations[1].is_generic);
  const Variable packed = find("packed");
  ASSERT_EQ(packed.relocations.size(), 2u);
  EXPECT_EQ(packed.relocations[0].bytes, 1);
  EXPECT_EQ(packed.relocations[1].shift, 8);
  EXPECT_EQ(find("sized").bytes, 12u);
  EXPECT_TRUE(find("dynamic").is_unsized);
}

TEST(Parse, ReadsCalls) {
  const Module module = ParseOrFail(std::string(kHeader) + R"(
.extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);
.func (.reg .b32 out) twice (.reg .b32 in) { add.u32 out, in, in; ret; }
.entry k() {
  .reg .b32 %r<9>; .reg .b64 %rd<9>;
  { .param .b64 a; .param .b64 b; .param .b32 r;
    st.param.b64 [a+0], %rd1; st.param.b64 [b], %rd2;
    call.uni (r), vprintf, (a, b);
    ld.param.b32 %r1, [r]; }
  call (%r2), twice, (5);
  mov.u64 %rd3, twice;
  proto: .callprototype (.reg .b32 _) _ (.reg .b32 _);
  call (%r3), %rd3, (%r2), proto;
  list: .calltargets twice;
  call (%r3), %rd3, (%r2), list;
  ret;
})");
  const Function& k = module.functions[2];
  ASSERT_EQ(k.calls.size(), 4u);
  EXPECT_EQ(k.calls[0].callee.symbol.index, 0u);
  EXPECT_EQ(k.calls[0].arguments.size(), 2u);
  EXPECT_EQ(k.calls[1].callee.symbol.index, 1u);
  EXPECT_EQ(k.calls[2].callee.kind, Kind::kRegister);
  EXPECT_EQ(k.calls[2].prototype, 0u);
  EXPECT_EQ(k.calls[3].targets, 0u);
}

// Each of its elements is one.
TEST(Parse, ReadsVectorsAsParametersArgumentsAndResults) {
  const Module module = ParseOrFail(std::string(kHeader) + R"(
.func (.reg .v2 .b32 out) swap (.reg .v2 .b32 in, .reg .b32 _) {
  mov.b32 out.x, in.y; mov.b32 out.y, in.x; ret; }
.entry k() {
  .reg .v2 .b32 v; .reg .b64 %rd<2>;
  call (v), swap, (v, v.x);
  mov.u64 %rd1, swap;
  proto: .callprototype (.reg .v2 .b32 _) _ (.reg .v2 .b32 _, .reg .b32 _);
  call (v), %rd1, (v, 5), proto;
  ret;
})");
  const Function& swap = module.functions[0];
  ASSERT_EQ(swap.params.size(), 3u);
  EXPECT_EQ(swap.returns.size(), 2u);
  EXPECT_EQ(swap.params[1].offset, 4u);
  EXPECT_EQ(swap.body[0].operands[1].index, swap.params[1].reg);
  const Function& k = module.functions[1];
  EXPECT_EQ(k.calls[0].arguments.size(), 3u);
  EXPECT_EQ(k.calls[1].returns.size(), 2u);
}

TEST(Parse, ReplacesAnAliasByItsFunction) {
  const Module module = ParseOrFail(std::string(kHeader) +
                                    ".func g() { ret; }\n.func f();\n.alias f, g;\n"
                                    ".entry k() { call f; ret; }");
  EXPECT_EQ(module.functions[2].calls[0].callee.symbol.index, 0u);
  EXPECT_EQ(module.functions[1].alias_of, 0u);
}

TEST(Parse, SkipsDebugInformation) {
  ParseOrFail(".version 9.0\n.target sm_90, debug\n.address_size 64\n.file 1 \"a.cu\"\n" +
              std::string(".section .debug_str { info: .b8 1,2\n .b32 .debug_x+4 }\n") +
              ".entry k() { .loc 1 2 3, function_name info, inlined_at 1 4 5\n ret; }\n"
              ".section .debug_loc { }\n@@DWARF .byte 1\n");
}

TEST(Parse, SeparatesVideoSelectors) {
  const Instruction v = FirstOf("vadd.u32.u32.s32.sat.add %r1, %r2.b3, %r3.h1, %r4;");
  EXPECT_EQ(v.operands[1].selector, Selector::kB3);
  EXPECT_EQ(v.operands[2].selector, Selector::kH1);
  EXPECT_EQ(v.modifiers.reduction, Reduction::kAdd);
  EXPECT_EQ(v.type_count, 3);
}

}  // namespace
}  // namespace smolvm::emulation::ptx
