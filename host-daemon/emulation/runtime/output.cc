#include "host-daemon/emulation/runtime/output.h"

#include <cstdio>
#include <cstring>
#include <mutex>
#include <vector>

#include "host-daemon/emulation/runtime/program.h"

namespace smolvm::emulation {
namespace {

// CU_LIMIT_PRINTF_FIFO_SIZE's default is 1 MiB.
constexpr size_t kBufferBytes = 1 << 20;
// Longest format, and longest string argument, that is printed.
constexpr size_t kMaxString = 16 << 10;
// Width and precision beyond this are cut: a kernel must not make the host allocate gigabytes.
constexpr int kMaxWidth = 4096;

std::mutex g_mutex;
std::string& Buffer() {
  static auto* buffer = new std::string;
  return *buffer;
}

void WriteOut(std::string* buffer) {
  if (buffer->empty()) return;
  fwrite(buffer->data(), 1, buffer->size(), stdout);
  fflush(stdout);
  buffer->clear();
}

bool ReadString(const DeviceReader& read, uint64_t address, std::string* text) {
  text->clear();
  while (text->size() < kMaxString) {
    char c;
    if (!read(address + text->size(), &c, 1)) return false;
    if (c == '\0') return true;
    text->push_back(c);
  }
  return true;
}

// The packed argument buffer.
class Arguments {
 public:
  Arguments(const DeviceReader& read, uint64_t address) : read_(read), address_(address) {}
  template <typename T>
  T Next() {
    offset_ = (offset_ + sizeof(T) - 1) / sizeof(T) * sizeof(T);
    T value{};
    if (address_ == 0 || !read_(address_ + offset_, &value, sizeof value)) value = T{};
    offset_ += sizeof(T);
    ++count_;
    return value;
  }
  int count() const { return count_; }

 private:
  const DeviceReader& read_;
  const uint64_t address_;
  uint64_t offset_ = 0;
  int count_ = 0;
};

struct Spec {
  char flags[8] = {};
  size_t flag_count = 0;
  int width = -1;
  int precision = -1;
  bool is_long = false;
  char conversion = 0;
};

int Cut(int value) { return value > kMaxWidth ? kMaxWidth : value; }

// Parses what follows '%'; advances *at past the conversion.
Spec ParseSpec(const std::string& format, size_t* at, Arguments* arguments) {
  Spec spec;
  size_t i = *at;
  while (i < format.size() && strchr("-+ #0", format[i]) != nullptr && spec.flag_count < 6) {
    spec.flags[spec.flag_count++] = format[i++];
  }
  const auto number = [&]() -> int {
    if (i < format.size() && format[i] == '*') {
      ++i;
      return arguments->Next<int32_t>();
    }
    int value = 0;
    while (i < format.size() && format[i] >= '0' && format[i] <= '9') {
      value = Cut(value * 10 + (format[i++] - '0'));
    }
    return value;
  };
  if (i < format.size() && (format[i] == '*' || (format[i] >= '1' && format[i] <= '9'))) {
    spec.width = number();
    if (spec.width < 0 && spec.flag_count < 7) {
      spec.flags[spec.flag_count++] = '-';
      spec.width = spec.width == INT32_MIN ? kMaxWidth : -spec.width;
    }
    spec.width = Cut(spec.width);
  }
  if (i < format.size() && format[i] == '.') {
    ++i;
    spec.precision = Cut(number());
  }
  for (; i < format.size() && strchr("hlLqjzt", format[i]) != nullptr; ++i) {
    if (strchr("lqjzt", format[i]) != nullptr) spec.is_long = true;
  }
  if (i < format.size()) spec.conversion = format[i++];
  *at = i;
  return spec;
}

// One conversion with a specification that we have put together ourselves from known-good parts.
template <typename T>
void Emit(const Spec& spec, const char* length, T value, std::string* text) {
  char format[48];
  char precision[16] = "";
  char width[16] = "";
  if (spec.width >= 0) snprintf(width, sizeof width, "%d", spec.width);
  if (spec.precision >= 0) snprintf(precision, sizeof precision, ".%d", spec.precision);
  snprintf(format, sizeof format, "%%%.*s%s%s%s%c", static_cast<int>(spec.flag_count), spec.flags,
           width, precision, length, spec.conversion);
  const int size = snprintf(nullptr, 0, format, value);
  if (size <= 0) return;
  std::vector<char> piece(static_cast<size_t>(size) + 1);
  snprintf(piece.data(), piece.size(), format, value);
  text->append(piece.data(), static_cast<size_t>(size));
}

void EmitConversion(const Spec& spec, const DeviceReader& read, Arguments* arguments,
                    std::string* text) {
  switch (spec.conversion) {
    case 'd':
    case 'i':
    case 'u':
    case 'o':
    case 'x':
    case 'X':
      if (spec.is_long) {
        Emit(spec, "ll", static_cast<long long>(arguments->Next<int64_t>()), text);
      } else {
        Emit(spec, "", arguments->Next<int32_t>(), text);
      }
      return;
    case 'c':
      Emit(spec, "", arguments->Next<int32_t>() & 0xff, text);
      return;
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
    case 'a':
    case 'A':
      Emit(spec, "", arguments->Next<double>(), text);
      return;
    case 'p':
      Emit(spec, "", reinterpret_cast<void*>(arguments->Next<uint64_t>()), text);
      return;
    case 's': {
      std::string value;
      const uint64_t address = arguments->Next<uint64_t>();
      if (address == 0) {
        value = "(null)";
      } else if (!ReadString(read, address, &value)) {
        value = "(bad address)";
      }
      Emit(spec, "", value.c_str(), text);
      return;
    }
    default:
      text->push_back(spec.conversion);
      return;
  }
}

}  // namespace

int FormatDevicePrintf(const DeviceReader& read, uint64_t format_address, uint64_t argument_address,
                       std::string* text) {
  std::string format;
  if (!ReadString(read, format_address, &format)) return -1;
  Arguments arguments(read, argument_address);
  for (size_t i = 0; i < format.size();) {
    if (format[i] != '%') {
      text->push_back(format[i++]);
      continue;
    }
    ++i;
    if (i < format.size() && format[i] == '%') {
      text->push_back('%');
      ++i;
      continue;
    }
    const Spec spec = ParseSpec(format, &i, &arguments);
    if (spec.conversion != 0) EmitConversion(spec, read, &arguments, text);
  }
  return arguments.count();
}

void AppendDeviceOutput(std::string_view text) {
  std::lock_guard lock(g_mutex);
  std::string& buffer = Buffer();
  if (buffer.size() + text.size() > kBufferBytes) WriteOut(&buffer);
  buffer += text;
}

void FlushDeviceOutput() {
  std::lock_guard lock(g_mutex);
  WriteOut(&Buffer());
}

}  // namespace smolvm::emulation
