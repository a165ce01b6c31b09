#pragma once

#include <string>
#include <vector>

#include "machine/state/record.h"

namespace smolvm::machine {

// HOST:GUEST[:ro|:rw]. Both absolute; HOST must be there. Throws Failure that says what is wrong.
Share ParseMount(const std::string& text);
// All of a command line's; outer folders come before those inside them.
std::vector<Share> ParseMounts(const std::vector<std::string>& texts);

}  // namespace smolvm::machine
