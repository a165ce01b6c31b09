#pragma once

namespace smolvm::gpu {

// `smolvm gpu …`. argv[0] is "gpu". Returns the exit status of the process.
int RunCommand(int argc, char** argv);

}  // namespace smolvm::gpu
