// What went wrong, in one line for stderr, and the exit status that goes with it.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace smolvm::machine {

// Exit statuses of the launcher itself, as container tools use them.
inline constexpr int kOwnError = 125;
inline constexpr int kCannotRun = 126;
inline constexpr int kNotFound = 127;
inline constexpr int kTimedOut = 124;

class Failure : public std::runtime_error {
 public:
  explicit Failure(const std::string& message, int status = kOwnError)
      : std::runtime_error(message), status_(status) {}
  int status() const { return status_; }

 private:
  int status_;
};

template <typename... Args>
[[noreturn]] void Fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Failure(fmt::format(format, std::forward<Args>(args)...));
}

// "No such file or directory" and the like, for the current or the given errno.
std::string ErrnoText();
std::string ErrnoText(int error);

}  // namespace smolvm::machine
