// A logger for code that lives in somebody else's process: the guest's libcuda, the emulation
// library, the worker.
//
// One `key=value` line per event. Silent unless SMOLVM_CUDA_LOG is set to error, warn, info or
// debug; lines go to stderr, or are appended to SMOLVM_CUDA_LOG_FILE (a worker, whose stderr is its
// guest's, names another descriptor in SMOLVM_CUDA_LOG_FD). The level is read once, at the first
// call; one that is none of these is `off`, after a line that says so.
//
// Threads: every function may be called from any thread; a line is written with one write(2), so
// lines never mix.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace smolvm::log {

enum class Level { kOff, kError, kWarn, kInfo, kDebug };

// The least important level that is written.
Level Threshold();
// Overrides the environment; for programs that have a --log-level option.
void SetThreshold(Level level);
// Parses "off", "error", "warn", "info" or "debug"; false when it is none of them.
bool ParseLevel(std::string_view text, Level* level);
// Names the process in each line (`component=worker`). The string must outlive the process.
void SetComponent(const char* component);

void Write(Level level, std::string_view event_and_fields);

// Quotes a value if it holds a space, a quote, '=' or a control character, so that a line stays
// parseable.
std::string Quote(std::string_view value);

template <typename... Args>
void At(Level level, fmt::format_string<Args...> format, Args&&... args) {
  if (level <= Threshold()) Write(level, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void Error(fmt::format_string<Args...> format, Args&&... args) {
  At(Level::kError, format, std::forward<Args>(args)...);
}
template <typename... Args>
void Warn(fmt::format_string<Args...> format, Args&&... args) {
  At(Level::kWarn, format, std::forward<Args>(args)...);
}
template <typename... Args>
void Info(fmt::format_string<Args...> format, Args&&... args) {
  At(Level::kInfo, format, std::forward<Args>(args)...);
}
template <typename... Args>
void Debug(fmt::format_string<Args...> format, Args&&... args) {
  At(Level::kDebug, format, std::forward<Args>(args)...);
}

}  // namespace smolvm::log
