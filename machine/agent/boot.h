// From the initramfs to the image's root file system: modules, disks, mounts, host name, network.
//
// Runs once, in process 1, before there is any other process. Throws machine::Failure with the step
// that failed.
#pragma once

#include "machine/wire/messages.h"

namespace smolvm::agent {

// The mounts that a fresh initramfs lacks; then the configuration can be read and modules loaded.
void MountEarly();
machine::GuestConfig ReadConfig();
void LoadModules(const machine::GuestConfig& config);
// Makes the image (with its layer of changes) the root; the initramfs is out of sight afterwards.
void EnterRoot(const machine::GuestConfig& config);
// Host name, /etc/hosts, loopback and, with config.net, the network; a loader cache for the CUDA
// library.
void PrepareSystem(const machine::GuestConfig& config);

}  // namespace smolvm::agent
