#pragma once

namespace smolvm::machine {

// Whether this host's NVIDIA driver library can be loaded and finds a GPU. Asked in a child process
// with a time limit, so that a broken driver can neither crash nor hang the launcher.
bool HostHasCudaDriver();

}  // namespace smolvm::machine
