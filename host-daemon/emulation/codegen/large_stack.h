// A stack for the compiler, which recurses as deeply as a kernel's blocks are many. The thread that
// launches may have any: a lane of a session has 512 KiB.
#pragma once

#include <functional>
#include <string>

namespace smolvm::emulation::codegen {

inline constexpr size_t kLargeStackBytes = size_t{256} << 20;

// Runs `body` on a thread of its own and waits for it. False, with a message, when none could be
// started. Only what is touched of the stack takes memory.
bool RunOnLargeStack(const std::function<void()>& body, std::string* error);

}  // namespace smolvm::emulation::codegen
