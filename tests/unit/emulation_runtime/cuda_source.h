// Compiles a program of tests/conformance/kernels with nvcc to PTX.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace smolvm::emulation {

struct CompiledCuda {
  std::string ptx;  // "" when there is none: see `problem`
  std::string problem;
  bool failed = false;  // else there is no nvcc here
};

inline CompiledCuda CompileCuda(const std::string& name) {
  std::string nvcc = "/usr/local/cuda/bin/nvcc";
  if (const char* home = getenv("CUDA_HOME")) nvcc = std::string(home) + "/bin/nvcc";
  if (access(nvcc.c_str(), X_OK) != 0) {
    return {.ptx = "",
            .problem = "no nvcc at " + nvcc +
                       " (set CUDA_HOME): programs compiled from CUDA C++ are NOT tested"};
  }
  char directory[] = "/tmp/emulation-conformance-XXXXXX";
  if (mkdtemp(directory) == nullptr) abort();
  const std::string out = std::string(directory) + "/out.ptx";
  const std::string command =
      nvcc + " -std=c++17 -ptx -arch=compute_90 " SMOLVM_SOURCE_DIR "/tests/conformance/kernels/" +
      name + " -o " + out + " 2>" + directory + "/log";
  const int status = system(command.c_str());
  std::ifstream file(status == 0 ? out : std::string(directory) + "/log");
  std::stringstream contents;
  contents << file.rdbuf();
  std::filesystem::remove_all(directory);
  if (status != 0) return {.ptx = "", .problem = contents.str(), .failed = true};
  return {.ptx = contents.str(), .problem = ""};
}

}  // namespace smolvm::emulation
