// The interpreter's inside: a block of threads. See ptx_interpreter.h.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "host-daemon/emulation/ptx/ir.h"
#include "tests/support/ptx_arithmetic.h"
#include "tests/support/ptx_interpreter.h"

namespace smolvm::ptx_interpreter {

// Where the state spaces lie in the generic one; global and constant addresses are themselves.
inline constexpr uint64_t kSharedWindow = uint64_t{1} << 60;
inline constexpr uint64_t kLocalWindow = uint64_t{2} << 60;
inline constexpr uint64_t kParamWindow = uint64_t{3} << 60;
// Addresses of functions: index + this.
inline constexpr uint64_t kFunctionBase = uint64_t{4} << 60;

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Frame {
  const emulation::ptx::Function* function = nullptr;
  uint32_t pc = 0;
  std::vector<uint64_t> registers;
  // Offsets in the thread's local and parameter memory where this frame's begin.
  uint64_t local_base = 0;
  uint64_t param_base = 0;
  uint32_t call = emulation::ptx::kNoIndex;  // the call in the caller that made this frame
};

enum class State { kReady, kAtBarrier, kAtWarp, kDone };

struct Thread {
  std::array<uint32_t, 3> tid{};
  uint32_t linear = 0;
  State state = State::kReady;
  uint32_t barrier = 0;
  uint32_t barrier_count = 0;
  std::vector<Frame> frames;
  std::vector<std::byte> local;
  std::vector<std::byte> param;
  Carry carry;

  Frame& frame() { return frames.back(); }
  const emulation::ptx::Instruction& instruction() { return frame().function->body[frame().pc]; }
  uint32_t lane() const { return linear % 32; }
};

class Block {
 public:
  Block(Interpreter* interpreter, const emulation::ptx::Function& kernel, const Launch& launch,
        std::array<uint32_t, 3> ctaid, uint64_t* steps);
  // Throws Failure.
  void Run();

 private:
  using Operand = emulation::ptx::Operand;
  using Instruction = emulation::ptx::Instruction;
  using StateSpace = emulation::ptx::StateSpace;

  // ptx_interpreter.cc: control.
  void Step(Thread* t);
  bool Control(Thread* t, const Instruction& i);
  void Call(Thread* t, const Instruction& i);
  void Return(Thread* t);
  void Push(Thread* t, const emulation::ptx::Function& function);
  bool Release();
  bool ReleaseBarriers();
  void Finish(Thread* t);

  // ptx_operands.cc.
  uint64_t Read(Thread* t, const Instruction& i, const Operand& o, Type type);
  uint64_t ReadSpecial(Thread* t, const Operand& o);
  void Write(Thread* t, const Operand& o, Type type, uint64_t bits);
  void Compute(Thread* t, const Instruction& i);
  void Move(Thread* t, const Instruction& i);
  uint64_t AddressOf(Thread* t, const emulation::ptx::Symbol& symbol);

  // ptx_memory.cc.
  void LayOut();
  uint64_t Address(Thread* t, const Operand& o);
  std::byte* Resolve(Thread* t, StateSpace space, uint64_t address, size_t bytes);
  uint64_t LoadBits(Thread* t, StateSpace space, uint64_t address, Type type);
  void StoreBits(Thread* t, StateSpace space, uint64_t address, Type type, uint64_t bits);
  static void CheckAlignment(uint64_t address, size_t bytes);
  bool Memory(Thread* t, const Instruction& i);
  void Atomic(Thread* t, const Instruction& i);
  void ConvertAddress(Thread* t, const Instruction& i);
  void AskSpace(Thread* t, const Instruction& i);

  // ptx_warp.cc.
  bool WaitsForWarp(const Instruction& i) const;
  bool ReleaseWarps();
  bool ReleaseWarp(uint32_t first);
  void Together(const std::vector<Thread*>& lanes, const Instruction& i);
  void Shuffle(const std::vector<Thread*>& lanes, const Instruction& i);
  void Vote(const std::vector<Thread*>& lanes, const Instruction& i);
  void Match(const std::vector<Thread*>& lanes, const Instruction& i);
  void Reduce(const std::vector<Thread*>& lanes, const Instruction& i);
  uint32_t MaskOf(Thread* t, const Instruction& i);

  Interpreter* interpreter_;
  const emulation::ptx::Module& module_;
  const emulation::ptx::Function& kernel_;
  const Launch& launch_;
  std::array<uint32_t, 3> ctaid_;
  uint64_t* steps_;
  std::vector<Thread> threads_;
  std::vector<std::byte> shared_;
  uint64_t dynamic_shared_ = 0;
  std::map<const emulation::ptx::Variable*, uint64_t>
      offsets_;  // of shared variables and of frames' variables
  std::map<const emulation::ptx::Function*, std::pair<uint64_t, uint64_t>>
      sizes_;  // of frames: local, param
  std::array<uint32_t, 16> arrived_{};
};

}  // namespace smolvm::ptx_interpreter
