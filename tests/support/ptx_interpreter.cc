#include "tests/support/ptx_interpreter.h"

#include <algorithm>
#include <cstring>

#include "tests/support/ptx_machine.h"

namespace smolvm::ptx_interpreter {

using emulation::ptx::Function;
using emulation::ptx::Opcode;
using emulation::ptx::Relocation;
using emulation::ptx::SymbolKind;
using emulation::ptx::Variable;

namespace {

constexpr int kTurn = 10'000;  // steps of one thread before the next has its turn: spin loops end

}  // namespace

Interpreter::Interpreter(const emulation::ptx::Module& module) : module_(module) {
  for (const Variable& variable : module.variables) {
    variables_.push_back(std::make_unique<std::byte[]>(variable.bytes));
  }
  for (uint32_t i = 0; i < variables_.size(); ++i) Initialise(i);
}

void Interpreter::Initialise(uint32_t index) {
  const Variable& variable = module_.variables[index];
  std::byte* memory = variables_[index].get();
  std::ranges::copy(variable.initial, memory);
  for (const Relocation& relocation : variable.relocations) {
    uint64_t address = relocation.symbol.kind == SymbolKind::kFunction
                           ? kFunctionBase + relocation.symbol.index
                           : reinterpret_cast<uint64_t>(variables_[relocation.symbol.index].get());
    address = (address + static_cast<uint64_t>(relocation.addend)) >> relocation.shift;
    memcpy(memory + relocation.offset, &address, relocation.bytes);
  }
}

std::byte* Interpreter::VariableAddress(std::string_view name) const {
  for (size_t i = 0; i < variables_.size(); ++i) {
    if (module_.variables[i].name == name) return variables_[i].get();
  }
  return nullptr;
}

bool Interpreter::MayTouch(uint64_t address, size_t bytes) const {
  const auto within = [address, bytes](const void* base, uint64_t size) {
    const auto begin = reinterpret_cast<uint64_t>(base);
    return address >= begin && bytes <= size && address - begin <= size - bytes;
  };
  for (const auto& [base, size] : buffers_) {
    if (within(base, size)) return true;
  }
  for (size_t i = 0; i < variables_.size(); ++i) {
    if (within(variables_[i].get(), module_.variables[i].bytes)) return true;
  }
  return false;
}

bool Interpreter::Run(std::string_view kernel, const Launch& launch, std::string* error) {
  const auto found = std::ranges::find_if(module_.functions, [kernel](const Function& f) {
    return f.is_entry && f.has_body && f.name == kernel;
  });
  if (found == module_.functions.end()) return *error = "no such kernel", false;
  if (launch.params.size() < found->param_bytes) return *error = "parameters are missing", false;
  uint64_t steps = 0;
  try {
    for (uint32_t z = 0; z < launch.grid[2]; ++z) {
      for (uint32_t y = 0; y < launch.grid[1]; ++y) {
        for (uint32_t x = 0; x < launch.grid[0]; ++x) {
          Block(this, *found, launch, {x, y, z}, &steps).Run();
        }
      }
    }
  } catch (const Failure& failure) {
    *error = failure.what();
    return false;
  }
  return true;
}

Block::Block(Interpreter* interpreter, const Function& kernel, const Launch& launch,
             std::array<uint32_t, 3> ctaid, uint64_t* steps)
    : interpreter_(interpreter),
      module_(interpreter->module()),
      kernel_(kernel),
      launch_(launch),
      ctaid_(ctaid),
      steps_(steps) {
  LayOut();
  for (uint32_t z = 0; z < launch.block[2]; ++z) {
    for (uint32_t y = 0; y < launch.block[1]; ++y) {
      for (uint32_t x = 0; x < launch.block[0]; ++x) {
        Thread& thread = threads_.emplace_back();
        thread.tid = {x, y, z};
        thread.linear = static_cast<uint32_t>(threads_.size() - 1);
        Push(&thread, kernel);
        std::copy_n(launch.params.begin(), kernel.param_bytes, thread.param.begin());
      }
    }
  }
}

void Block::Run() {
  const auto is_done = [](const Thread& thread) { return thread.state == State::kDone; };
  while (!std::ranges::all_of(threads_, is_done)) {
    bool any_ran = false;
    for (Thread& thread : threads_) {
      for (int turn = 0; turn < kTurn && thread.state == State::kReady; ++turn) {
        Step(&thread);
        any_ran = true;
      }
    }
    const auto is_ready = [](const Thread& thread) { return thread.state == State::kReady; };
    const bool released = std::ranges::none_of(threads_, is_ready) && Release();
    if (!any_ran && !released && !std::ranges::all_of(threads_, is_done)) {
      throw Failure("deadlock: threads wait at barriers that nothing completes");
    }
  }
}

void Block::Step(Thread* t) {
  if (++*steps_ > launch_.most_steps) throw Failure("too many steps");
  const Instruction& i = t->instruction();
  if (i.guarded()) {
    const bool holds = t->frame().registers[i.guard] != 0;
    if (holds == i.guard_negated) {
      ++t->frame().pc;
      return;
    }
  }
  try {
    if (WaitsForWarp(i)) {
      t->state = State::kAtWarp;
    } else if (!Control(t, i)) {
      if (!Memory(t, i)) Compute(t, i);
      ++t->frame().pc;
    }
  } catch (const Failure& failure) {
    throw Failure("line " + std::to_string(i.line) + " (" + std::string(i.text) +
                  "): " + failure.what());
  }
}

void Block::Finish(Thread* t) { t->state = State::kDone; }

// True: the instruction has set where to go on.
bool Block::Control(Thread* t, const Instruction& i) {
  const Function& function = *t->frame().function;
  switch (i.opcode) {
    case Opcode::kBra:
      t->frame().pc = function.labels[i.operands[0].index].instruction;
      return true;
    case Opcode::kBrxIdx: {
      const auto& labels = function.branch_targets[i.operands[1].index].labels;
      const uint64_t index = Read(t, i, i.operands[0], Type::kU32);
      if (index >= labels.size()) throw Failure("index beyond the list of targets");
      t->frame().pc = function.labels[labels[index]].instruction;
      return true;
    }
    case Opcode::kCall:
      Call(t, i);
      return true;
    case Opcode::kRet:
      Return(t);
      return true;
    case Opcode::kExit:
      Finish(t);
      return true;
    case Opcode::kTrap:
      throw Failure("trap");
    case Opcode::kBarSync:
    case Opcode::kBarRed:
    case Opcode::kBarArrive: {
      const size_t first = i.opcode == Opcode::kBarRed ? 1 : 0;
      const size_t counts = i.operands.size() - first - (i.opcode == Opcode::kBarRed ? 1 : 0);
      t->barrier = static_cast<uint32_t>(Read(t, i, i.operands[first], Type::kU32)) & 15;
      t->barrier_count =
          counts > 1 ? static_cast<uint32_t>(Read(t, i, i.operands[first + 1], Type::kU32)) : 0;
      if (i.opcode == Opcode::kBarArrive) {
        ++arrived_[t->barrier];
        ++t->frame().pc;
      } else {
        t->state = State::kAtBarrier;
      }
      return true;
    }
    default:
      return false;
  }
}

void Block::Push(Thread* t, const Function& function) {
  Frame frame;
  frame.function = &function;
  frame.registers.assign(function.registers.size(), 0);
  constexpr uint64_t kAlignment = 256;
  frame.local_base = (t->local.size() + kAlignment - 1) / kAlignment * kAlignment;
  frame.param_base = (t->param.size() + kAlignment - 1) / kAlignment * kAlignment;
  const auto [local, param] = sizes_.at(&function);
  t->local.resize(frame.local_base + local);
  t->param.resize(frame.param_base + param);
  t->frames.push_back(std::move(frame));
}

void Block::Call(Thread* t, const Instruction& i) {
  const emulation::ptx::Call& call = t->frame().function->calls[i.call];
  uint64_t index = call.callee.symbol.index;
  if (call.callee.is_register()) index = t->frame().registers[call.callee.index] - kFunctionBase;
  if (index >= module_.functions.size()) throw Failure("call of something that is no function");
  const Function& callee = module_.functions[index];
  if (!callee.has_body) throw Failure("not covered: call of " + std::string(callee.name));
  constexpr size_t kDeepest = 1000;
  if (t->frames.size() > kDeepest) throw Failure("recursion too deep");
  // Arguments are read in the caller's frame, and written in the new one.
  std::vector<std::vector<std::byte>> arguments;
  for (size_t n = 0; n < call.arguments.size(); ++n) {
    const Variable& param = callee.params[n];
    std::vector<std::byte>& bytes = arguments.emplace_back(std::max<uint64_t>(param.bytes, 8));
    const Operand& o = call.arguments[n];
    if (o.kind == Operand::Kind::kSymbol) {
      const uint64_t from = AddressOf(t, o.symbol);
      memcpy(bytes.data(), Resolve(t, StateSpace::kParam, from, param.bytes), param.bytes);
    } else {
      const uint64_t bits = Read(t, i, o, param.type);
      memcpy(bytes.data(), &bits, sizeof(bits));
    }
  }
  Push(t, callee);
  t->frame().call = i.call;
  for (size_t n = 0; n < arguments.size(); ++n) {
    const Variable& param = callee.params[n];
    if (param.space == StateSpace::kReg) {
      memcpy(&t->frame().registers[param.reg], arguments[n].data(), sizeof(uint64_t));
    } else {
      const uint64_t to = AddressOf(t, {SymbolKind::kParam, static_cast<uint32_t>(n)});
      memcpy(Resolve(t, StateSpace::kParam, to, param.bytes), arguments[n].data(), param.bytes);
    }
  }
}

void Block::Return(Thread* t) {
  if (t->frames.size() == 1) return Finish(t);
  const Frame done = t->frame();
  std::vector<std::vector<std::byte>> results;
  for (size_t n = 0; n < done.function->returns.size(); ++n) {
    const Variable& result = done.function->returns[n];
    std::vector<std::byte>& bytes = results.emplace_back(std::max<uint64_t>(result.bytes, 8));
    if (result.space == StateSpace::kReg) {
      memcpy(bytes.data(), &done.registers[result.reg], sizeof(uint64_t));
    } else {
      const uint64_t from = AddressOf(t, {SymbolKind::kReturn, static_cast<uint32_t>(n)});
      memcpy(bytes.data(), Resolve(t, StateSpace::kParam, from, result.bytes), result.bytes);
    }
  }
  t->local.resize(done.local_base);
  t->param.resize(done.param_base);
  t->frames.pop_back();
  const emulation::ptx::Call& call = t->frame().function->calls[done.call];
  for (size_t n = 0; n < results.size(); ++n) {
    const Operand& o = call.returns[n];
    if (o.kind == Operand::Kind::kSymbol) {
      const uint64_t to = AddressOf(t, o.symbol);
      memcpy(Resolve(t, StateSpace::kParam, to, done.function->returns[n].bytes), results[n].data(),
             done.function->returns[n].bytes);
    } else {
      uint64_t bits;
      memcpy(&bits, results[n].data(), sizeof(bits));
      Write(t, o, done.function->returns[n].type, bits);
    }
  }
  ++t->frame().pc;
}

bool Block::Release() {
  const bool warps = ReleaseWarps();
  return ReleaseBarriers() || warps;
}

bool Block::ReleaseBarriers() {
  bool any = false;
  for (uint32_t id = 0; id < arrived_.size(); ++id) {
    std::vector<Thread*> waiting;
    uint32_t alive = 0;
    for (Thread& thread : threads_) {
      alive += thread.state != State::kDone ? 1 : 0;
      if (thread.state == State::kAtBarrier && thread.barrier == id) waiting.push_back(&thread);
    }
    if (waiting.empty()) continue;
    const uint32_t needed = waiting[0]->barrier_count != 0 ? waiting[0]->barrier_count : alive;
    if (waiting.size() + arrived_[id] < needed) continue;
    uint64_t count = 0;
    bool all = true;
    for (Thread* thread : waiting) {
      const Instruction& i = thread->instruction();
      if (i.opcode != Opcode::kBarRed) continue;
      const bool p = Read(thread, i, i.operands.back(), Type::kPred) != 0;
      count += p ? 1 : 0;
      all = all && p;
    }
    for (Thread* thread : waiting) {
      const Instruction& i = thread->instruction();
      if (i.opcode == Opcode::kBarRed) {
        const auto reduction = i.modifiers.reduction;
        const uint64_t value = reduction == emulation::ptx::Reduction::kPopc ? count
                               : reduction == emulation::ptx::Reduction::kAnd
                                   ? (all ? 1 : 0)
                                   : (count != 0 ? 1 : 0);
        Write(thread, i.operands[0], i.type(), value);
      }
      thread->state = State::kReady;
      ++thread->frame().pc;
    }
    arrived_[id] = 0;
    any = true;
  }
  return any;
}

}  // namespace smolvm::ptx_interpreter
