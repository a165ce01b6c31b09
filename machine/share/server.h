// Serves one folder (or one file) of the host to a machine: the FUSE protocol (<linux/fuse.h>,
// major 7) over a stream.
#pragma once

#include <string>

namespace smolvm::machine {

// Serves until the stream ends. Returns the exit status of the process that does nothing else: 0,
// or 1 when the guest broke the protocol or `root` cannot be opened.
int ServeShare(int stream, const std::string& root, bool read_only);

}  // namespace smolvm::machine
