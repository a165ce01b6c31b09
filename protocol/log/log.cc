#include "protocol/log/log.h"

#include <fcntl.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>

namespace smolvm::log {
namespace {

constexpr const char* kNames[] = {"off", "error", "warn", "info", "debug"};

std::atomic<int> g_threshold{-1};
std::atomic<const char*> g_component{"cuda"};

// Holds SIGXFSZ back for its lifetime: a file that may not grow any more (`ulimit -f`) ends no
// program for the sake of its log. The line is lost, as on a full disk. The disposition is the
// program's own, whose process this may be; the signal comes to the thread that writes.
class FileSizeSignalHeld {
 public:
  FileSizeSignalHeld() {
    sigset_t pending;
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGXFSZ) == 1;
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~FileSizeSignalHeld() {
    const timespec now{};
    if (!was_pending_) sigtimedwait(&signal_, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  FileSizeSignalHeld(const FileSizeSignalHeld&) = delete;
  FileSizeSignalHeld& operator=(const FileSizeSignalHeld&) = delete;

 private:
  sigset_t signal_, before_;
  bool was_pending_;
};

// Opened anew for each line: logging is rare, and a descriptor kept open could be closed or reused
// by the program whose process this is.
void WriteOut(std::string_view line) {
  const char* path = getenv("SMOLVM_CUDA_LOG_FILE");
  const int file = path && *path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644) : -1;
  const char* number = getenv("SMOLVM_CUDA_LOG_FD");
  const int fd = file >= 0 ? file : number && *number ? atoi(number) : STDERR_FILENO;
  ssize_t written;
  const FileSizeSignalHeld held;
  do {
    written = write(fd, line.data(), line.size());
  } while (written < 0 && errno == EINTR);
  if (file >= 0) close(file);
}

std::string Line(Level level, std::string_view event_and_fields) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  tm utc{};
  gmtime_r(&now.tv_sec, &utc);
  char stamp[32];
  strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc);
  return fmt::format("time={}.{:03}Z level={} component={} pid={} {}\n", stamp,
                     now.tv_nsec / 1000000, kNames[static_cast<int>(level)], g_component.load(),
                     getpid(), event_and_fields);
}

// A library in a worker says what its guest makes it say, and must not fill the daemon's log.
enum class Room { kLine, kLastLine, kNone };
Room RoomForGuest() {
  constexpr int kMostLines = 500;
  static std::atomic<int> lines{0};
  const bool is_library = std::string_view(g_component.load()) == "cuda";
  if (!is_library || getenv("SMOLVM_CUDA_LOG_FD") == nullptr) return Room::kLine;
  if (lines.load(std::memory_order_relaxed) > kMostLines) return Room::kNone;
  const int before = lines.fetch_add(1, std::memory_order_relaxed);
  if (before == kMostLines) return Room::kLastLine;
  return before < kMostLines ? Room::kLine : Room::kNone;
}

// The environment's level, once; whoever has set a level that is none has asked for lines, and gets
// one that says so.
Level ThresholdFromEnvironment() {
  const char* text = getenv("SMOLVM_CUDA_LOG");
  Level level = Level::kOff;
  const bool good = text == nullptr || *text == '\0' || ParseLevel(text, &level);
  int unset = -1;
  if (!g_threshold.compare_exchange_strong(unset, static_cast<int>(level)))
    return static_cast<Level>(unset);
  if (!good) {
    WriteOut(
        Line(Level::kError, fmt::format("event=bad_setting name=SMOLVM_CUDA_LOG value={} "
                                        "expected=\"off, error, warn, info or debug\" used=off",
                                        Quote(text))));
  }
  return level;
}

}  // namespace

Level Threshold() {
  const int level = g_threshold.load(std::memory_order_relaxed);
  return level < 0 ? ThresholdFromEnvironment() : static_cast<Level>(level);
}

void SetThreshold(Level level) { g_threshold.store(static_cast<int>(level)); }

bool ParseLevel(std::string_view text, Level* level) {
  for (int i = 0; i < static_cast<int>(std::size(kNames)); ++i) {
    if (text == kNames[i]) {
      *level = static_cast<Level>(i);
      return true;
    }
  }
  return false;
}

void SetComponent(const char* component) { g_component.store(component); }

void Write(Level level, std::string_view event_and_fields) {
  if (level > Threshold() || level == Level::kOff) return;
  const Room room = RoomForGuest();
  if (room == Room::kNone) return;
  WriteOut(room == Room::kLine
               ? Line(level, event_and_fields)
               : Line(Level::kWarn, "event=log_full reason=\"many lines of one guest\""));
}

std::string Quote(std::string_view value) {
  bool plain = !value.empty();
  for (const unsigned char c : value) plain = plain && c > ' ' && c != '"' && c != '=' && c != 0x7f;
  if (plain) return std::string(value);
  std::string quoted = "\"";
  for (const unsigned char c : value) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += static_cast<char>(c);
    } else if (c < ' ' || c == 0x7f) {
      quoted += fmt::format("\\x{:02x}", c);
    } else {
      quoted += static_cast<char>(c);
    }
  }
  return quoted + '"';
}

}  // namespace smolvm::log
