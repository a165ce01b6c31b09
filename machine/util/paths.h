// Where things are: our state and cache folders, and the programs and libraries that belong to us.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace smolvm::machine {

// ${XDG_STATE_HOME:-~/.local/state}/smolvm. Throws Failure without a home folder.
std::filesystem::path StateFolder();
// ${XDG_CACHE_HOME:-~/.cache}/smolvm-cuda
std::filesystem::path CacheFolder();

// A program of ours: $`variable`, beside the running executable, in ../libexec/smolvm, in PATH.
// Throws Failure that names it.
std::string FindOwnProgram(const std::string& name, const char* variable);

// The folder that holds the guest's libcuda.so.1: $SMOLVM_CUDA_GUEST_LIBS, or beside the
// executable's folder. Throws Failure.
std::filesystem::path GuestLibraryFolder();

}  // namespace smolvm::machine
