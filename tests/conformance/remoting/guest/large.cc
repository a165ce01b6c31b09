// Copies as large as memory allows, and many calls over a long line.
#include <time.h>

#include "tests/conformance/remoting/guest/command.h"

namespace smolvm::remoting {
namespace {

// The words of a large block, each told by its place: no second block to compare with.
uint32_t WordAt(size_t i) { return static_cast<uint32_t>(i * 2654435761u ^ i >> 7); }

size_t SizeFrom(const Arguments& arguments) {
  CHECK(arguments.size() == 1);
  return strtoull(arguments[0].c_str(), nullptr, 0);
}

}  // namespace

// large_copy BYTES: there with one call, back with one call, every word looked at.
COMMAND(large_copy) {
  const size_t size = SizeFrom(arguments);
  Start();
  CUdeviceptr memory = 0;
  OK(cuMemAlloc(&memory, size));
  std::vector<uint32_t> words(size / 4);
  for (size_t i = 0; i < words.size(); ++i) words[i] = WordAt(i);
  OK(cuMemcpyHtoD(memory, words.data(), size));
  for (uint32_t& word : words) word = 0;
  OK(cuMemcpyDtoH(words.data(), memory, size));
  for (size_t i = 0; i < words.size(); ++i) CHECK(words[i] == WordAt(i));
  OK(cuMemFree(memory));
}

// One copy to the device, of which the test sees the beginning only.
COMMAND(large_copy_to_be_killed) {
  const size_t size = SizeFrom(arguments);
  Start();
  CUdeviceptr memory = 0;
  OK(cuMemAlloc(&memory, size));
  std::vector<char> bytes(size, 1);
  Say("ready");
  for (;;) OK(cuMemcpyHtoD(memory, bytes.data(), size));
}

// Over an emulated line of a tenth of a second: what is fired and forgotten does not wait for it.
COMMAND(long_line) {
  Start();
  CUdeviceptr memory = 0;
  OK(cuMemAlloc(&memory, 4000));
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuMemsetD32Async(memory, 0, 1000, stream));
  OK(cuStreamSynchronize(stream));
  timespec begin{}, end{};
  clock_gettime(CLOCK_MONOTONIC, &begin);
  for (unsigned i = 0; i < 1000; ++i) OK(cuMemsetD32Async(memory + 4 * i, i, 1, stream));
  OK(cuStreamSynchronize(stream));
  clock_gettime(CLOCK_MONOTONIC, &end);
  const double seconds = end.tv_sec - begin.tv_sec + (end.tv_nsec - begin.tv_nsec) * 1e-9;
  // The synchronise waits for the line once. A thousand waits would take 100 s.
  CHECK(seconds >= 0.1);
  CHECK(seconds < 50);
  std::vector<uint32_t> words(1000);
  OK(cuMemcpyDtoH(words.data(), memory, 4000));
  for (unsigned i = 0; i < 1000; ++i) CHECK(words[i] == i);
}

}  // namespace smolvm::remoting
