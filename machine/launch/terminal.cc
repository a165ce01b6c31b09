#include "machine/launch/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

namespace smolvm::machine {

RawTerminal::RawTerminal() {
  if (tcgetattr(STDIN_FILENO, &saved_) != 0) return;
  termios raw = saved_;
  cfmakeraw(&raw);
  active_ = tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
}

RawTerminal::~RawTerminal() {
  if (active_) tcsetattr(STDIN_FILENO, TCSADRAIN, &saved_);
}

TerminalSize AskTerminalSize() {
  winsize size{};
  if (ioctl(STDIN_FILENO, TIOCGWINSZ, &size) != 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) {
    return {};
  }
  return {size.ws_row, size.ws_col};
}

}  // namespace smolvm::machine
