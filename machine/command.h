#pragma once

namespace smolvm::machine {

// `smolvm machine …`. argv[0] is "machine". Returns the exit status of the process: that of the
// guest's command, or 125 (the launcher's own error), 126 (the command cannot be run), 127 (it was
// not found).
int RunCommand(int argc, char** argv);

}  // namespace smolvm::machine
