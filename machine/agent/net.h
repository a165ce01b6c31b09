#pragma once

namespace smolvm::agent {

void StartLoopback();
// Gives eth0 the fixed address of QEMU's user-mode network (10.0.2.15, router 10.0.2.2; QEMU
// documentation, "Network emulation"). Throws machine::Failure.
void StartNetwork();

}  // namespace smolvm::agent
