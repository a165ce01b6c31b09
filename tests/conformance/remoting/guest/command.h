// What the commands of remoting_guest share. A command is a small CUDA program; it succeeds by
// returning, and ends the process at the first thing that is not as it should be.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace smolvm::remoting {

using Arguments = std::vector<std::string>;

std::map<std::string, std::function<void(const Arguments&)>>& Commands();

struct Register {
  Register(const char* name, std::function<void(const Arguments&)> run) {
    Commands()[name] = std::move(run);
  }
};

// COMMAND(name) { … arguments … }
#define COMMAND(name)                                                           \
  static void Run_##name(const ::smolvm::remoting::Arguments&);                 \
  static const ::smolvm::remoting::Register register_##name(#name, Run_##name); \
  static void Run_##name([[maybe_unused]] const ::smolvm::remoting::Arguments& arguments)

[[noreturn]] inline void Fail(const char* file, int line, const char* what, long got) {
  fflush(stdout);
  fprintf(stderr, "%s:%d: %s: got %ld\n", file, line, what, got);
  _Exit(1);
}

#define WANT(code, call)                                                                        \
  do {                                                                                          \
    const long got_ = (call);                                                                   \
    if (got_ != (code)) ::smolvm::remoting::Fail(__FILE__, __LINE__, #call " != " #code, got_); \
  } while (0)
#define OK(call) WANT(0, call)
#define CHECK(condition)                                                           \
  do {                                                                             \
    if (!(condition)) ::smolvm::remoting::Fail(__FILE__, __LINE__, #condition, 0); \
  } while (0)

// An address that no handle has.
template <typename Handle>
Handle Garbage() {
  return reinterpret_cast<Handle>(~uintptr_t{0});
}

// cuInit, and a context that is current.
CUcontext Start();

// Tells the test that something is reached, and waits until it closes our standard input.
void Say(const std::string& line);
void AwaitInputEnd();

// `size` bytes go to the device and come back intact, once.
void RoundTrip(size_t size, unsigned seed);
// The same through memory that stays: cuMemFree would wait for all of the device's work.
void CopyThereAndBack(CUdeviceptr memory, size_t size, unsigned seed);

}  // namespace smolvm::remoting
