// remoting_guest COMMAND [ARGUMENT…]
#include <unistd.h>

#include <cerrno>

#include "tests/conformance/remoting/guest/command.h"

namespace smolvm::remoting {

std::map<std::string, std::function<void(const Arguments&)>>& Commands() {
  static auto* commands = new std::map<std::string, std::function<void(const Arguments&)>>;
  return *commands;
}

CUcontext Start() {
  OK(cuInit(0));
  CUdevice device = 0;
  OK(cuDeviceGet(&device, 0));
  CUcontext context = nullptr;
  OK(cuCtxCreate(&context, nullptr, 0, device));
  return context;
}

void Say(const std::string& line) {
  puts(line.c_str());
  fflush(stdout);
}

void AwaitInputEnd() {
  char byte;
  ssize_t got;
  do {
    got = read(STDIN_FILENO, &byte, 1);
  } while (got > 0 || (got < 0 && errno == EINTR));
}

void CopyThereAndBack(CUdeviceptr memory, size_t size, unsigned seed) {
  std::vector<uint32_t> there(size / 4), back(size / 4);
  for (size_t i = 0; i < there.size(); ++i)
    there[i] = static_cast<uint32_t>(i * 2654435761u + seed);
  OK(cuMemcpyHtoD(memory, there.data(), size));
  OK(cuMemcpyDtoH(back.data(), memory, size));
  CHECK(there == back);
}

void RoundTrip(size_t size, unsigned seed) {
  CUdeviceptr memory = 0;
  OK(cuMemAlloc(&memory, size));
  CopyThereAndBack(memory, size, seed);
  OK(cuMemFree(memory));
}

}  // namespace smolvm::remoting

int main(int argc, char** argv) {
  const auto& commands = smolvm::remoting::Commands();
  const auto found = commands.find(argc < 2 ? "" : argv[1]);
  if (found == commands.end()) {
    fprintf(stderr, "remoting_guest: no such command\n");
    return 2;
  }
  found->second({argv + 2, argv + argc});
  return 0;
}
