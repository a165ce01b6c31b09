#pragma once

#include <filesystem>
#include <string>

#include "machine/guest/kernel.h"
#include "machine/wire/messages.h"

namespace smolvm::machine {

// Writes a machine's initramfs: the agent, the kernel's modules, the agent's configuration
// (config.modules is filled in) and, with config.cuda, the libraries of `cuda_folder`.
void WriteInitramfs(const std::filesystem::path& target, const std::string& agent,
                    const GuestKernel& kernel, GuestConfig config,
                    const std::filesystem::path& cuda_folder);

// Whether a file of the guest library folder goes into the machine.
bool IsGuestLibrary(const std::string& file_name);

}  // namespace smolvm::machine
