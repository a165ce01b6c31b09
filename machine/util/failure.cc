#include "machine/util/failure.h"

#include <cerrno>
#include <system_error>

namespace smolvm::machine {

std::string ErrnoText() { return ErrnoText(errno); }

std::string ErrnoText(int error) { return std::generic_category().message(error); }

}  // namespace smolvm::machine
