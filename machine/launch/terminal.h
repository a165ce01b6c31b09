#pragma once

#include <termios.h>

#include <cstdint>

namespace smolvm::machine {

// Raw mode on standard input while it lives, when that is a terminal.
class RawTerminal {
 public:
  RawTerminal();
  ~RawTerminal();
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

 private:
  bool active_ = false;
  termios saved_{};
};

struct TerminalSize {
  uint32_t rows = 0, columns = 0;
  bool operator==(const TerminalSize&) const = default;
};
TerminalSize AskTerminalSize();

}  // namespace smolvm::machine
