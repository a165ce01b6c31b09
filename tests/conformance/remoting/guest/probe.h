// Drives a function of the driver API with every value that its parameters can have: one argument
// at a time is made each enumerator of its type, each flag, a missing pointer, a missing or unknown
// handle, and the others are right. What comes back is printed, a line a call, so that two
// libraries can be compared.
#pragma once

#include <cuda.h>

#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "enumerators.h"

namespace smolvm::remoting {

// What arguments are made of. Handles are made when a call needs them, and all anew after a call
// that succeeded, which may have ended them.
class Fixture {
 public:
  static constexpr size_t kBytes = 1 << 16;  // of each buffer and of the device memory

  // The context is current, and none other is on the thread's stack.
  void Prepare();
  void Reset();

  CUcontext context() const { return context_; }
  CUstream stream();
  CUevent event();
  CUmodule module();
  CUfunction function();
  CUlibrary library();
  CUkernel kernel();
  CUmemoryPool pool();
  CUlinkState link();
  CUdeviceptr memory();
  void* pinned();
  void* registered();
  // Zeroed host memory for parameter `index`.
  char* Buffer(size_t index);
  // "stream" for the handle of ours that `value` is; else the number.
  std::string Name(uint64_t value) const;

 private:
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  CUevent event_ = nullptr;
  CUmodule module_ = nullptr;
  CUlibrary library_ = nullptr;
  CUfunction function_ = nullptr;
  CUkernel kernel_ = nullptr;
  CUmemoryPool pool_ = nullptr;
  CUlinkState link_ = nullptr;
  CUdeviceptr memory_ = 0;
  void* pinned_ = nullptr;
  std::unique_ptr<char[]> buffers_[16];
};

// A parameter of a call.
struct Site {
  Fixture& fixture;
  std::string call;
  std::string name;
  size_t index;
};

// Another argument: its name, and what makes it of the right one.
template <typename T>
struct Other {
  std::string label;
  std::function<void(T&)> make;
};

template <typename T>
using Others = std::vector<Other<T>>;

// By hand, for types that need it: what a right argument is, and what else there is to try.
int64_t RightNumber(const Site& site);
std::vector<uint64_t> OtherNumbers(const Site& site, size_t bytes);
const char* RightText(const Site& site);
void* RightPointer(const Site& site);  // to a buffer that holds what the call wants
bool MayBeMissing(const Site& site);   // the right pointer is none

void Vary(const Site& site, Others<const CUDA_MEMCPY2D*>* others);
void Vary(const Site& site, Others<const CUDA_MEMCPY3D*>* others);
void Vary(const Site& site, Others<const CUDA_MEMCPY3D_PEER*>* others);
void Vary(const Site& site, Others<const CUmemPoolProps*>* others);
void Vary(const Site& site, Others<const CUlaunchConfig*>* others);
void Vary(const Site& site, Others<const CUstreamAttrValue*>* others);
void Vary(const Site& site, Others<CUctxCreateParams*>* others);
template <typename T>
void Vary(const Site&, Others<T>*) {}

// Each enumerator of T, and values that are none.
template <typename T>
std::vector<std::pair<std::string, T>> EveryValue() {
  std::vector<std::pair<std::string, T>> values;
  for (const auto& [name, value] : kEnumerators<T>) values.emplace_back(name, value);
  for (const int value : {-1, 0, 1000, 0x7fffffff})
    values.emplace_back(std::to_string(value), static_cast<T>(value));
  return values;
}

void RunHostFunction(void*);
void RunCallback(CUstream, CUresult, void*);
size_t NoSharedMemory(int);

template <typename T>
T RightHandle(const Site& site) {
  Fixture& fixture = site.fixture;
  if constexpr (std::is_same_v<T, CUcontext>) return fixture.context();
  if constexpr (std::is_same_v<T, CUstream>) return fixture.stream();
  if constexpr (std::is_same_v<T, CUevent>) return fixture.event();
  if constexpr (std::is_same_v<T, CUmodule>) return fixture.module();
  if constexpr (std::is_same_v<T, CUfunction>) return fixture.function();
  if constexpr (std::is_same_v<T, CUlibrary>) return fixture.library();
  if constexpr (std::is_same_v<T, CUkernel>) return fixture.kernel();
  if constexpr (std::is_same_v<T, CUmemoryPool>) return fixture.pool();
  if constexpr (std::is_same_v<T, CUlinkState>) return fixture.link();
}

template <typename T>
inline constexpr bool kIsHandle =
    std::is_same_v<T, CUcontext> || std::is_same_v<T, CUstream> || std::is_same_v<T, CUevent> ||
    std::is_same_v<T, CUmodule> || std::is_same_v<T, CUfunction> || std::is_same_v<T, CUlibrary> ||
    std::is_same_v<T, CUkernel> || std::is_same_v<T, CUmemoryPool> ||
    std::is_same_v<T, CUlinkState>;

template <typename T>
T Right(const Site& site) {
  if constexpr (kIsHandle<T>) {
    return RightHandle<T>(site);
  } else if constexpr (std::is_same_v<T, CUhostFn>) {
    return &RunHostFunction;
  } else if constexpr (std::is_same_v<T, CUstreamCallback>) {
    return &RunCallback;
  } else if constexpr (std::is_same_v<T, CUoccupancyB2DSize>) {
    return &NoSharedMemory;
  } else if constexpr (std::is_same_v<T, const char*>) {
    return RightText(site);
  } else if constexpr (std::is_pointer_v<T>) {
    return MayBeMissing(site) ? nullptr : static_cast<T>(RightPointer(site));
  } else {
    return static_cast<T>(RightNumber(site));
  }
}

template <typename T>
Others<T> AllOthers(const Site& site) {
  Others<T> others;
  const auto add = [&](const std::string& label, T value) {
    others.push_back({label, [value](T& argument) { argument = value; }});
  };
  if constexpr (std::is_pointer_v<T>) add("NULL", nullptr);
  if constexpr (kIsHandle<T>) add("unknown", reinterpret_cast<T>(~uintptr_t{0}));
  if constexpr (std::is_same_v<T, CUstream>) {
    add("legacy", CU_STREAM_LEGACY);
    add("per-thread", CU_STREAM_PER_THREAD);
  }
  if constexpr (std::is_same_v<T, const char*>) {
    add("empty", "");
    add("nonexistent", "nonexistent");
  }
  if constexpr (std::is_enum_v<T>) {
    for (const auto& [label, value] : EveryValue<T>()) add(label, value);
  } else if constexpr (std::is_integral_v<T>) {
    for (const uint64_t value : OtherNumbers(site, sizeof(T)))
      add(std::to_string(value), static_cast<T>(value));
  } else if constexpr (std::is_pointer_v<T>) {
    using Value = std::remove_pointer_t<T>;
    if constexpr (std::is_enum_v<Value> && !std::is_const_v<Value>) {
      for (const auto& [label, value] : EveryValue<Value>()) {
        others.push_back({"->" + label, [site, value](T& argument) {
                            argument = reinterpret_cast<T>(site.fixture.Buffer(site.index));
                            *argument = value;
                          }});
      }
    }
    Vary(site, &others);
  }
  return others;
}

// What a call left behind a pointer.
std::string DescribeBytes(const void* bytes, size_t size);
std::string DescribeText(const char* text);
bool LeavesTheSame(const Site& site);  // on every machine and in every process

template <typename T>
std::string Describe(const Site& site, T argument) {
  if constexpr (!std::is_pointer_v<T>) {
    return "";
  } else {
    using Value = std::remove_pointer_t<T>;
    if constexpr (kIsHandle<T> || std::is_function_v<Value> ||
                  (std::is_const_v<Value> && !std::is_pointer_v<Value>)) {
      return "";
    } else {
      if (argument == nullptr || !LeavesTheSame(site)) return "";
      const std::string head = " " + site.name + "=";
      if constexpr (std::is_same_v<T, const char**>) {
        return head + DescribeText(*argument);
      } else if constexpr (kIsHandle<Value>) {
        return head + (*argument ? "set" : "none");
      } else if constexpr (std::is_pointer_v<Value>) {
        return head + (*argument ? "set" : "none");
      } else if constexpr (std::is_same_v<T, char*>) {
        return head + DescribeText(argument);
      } else if constexpr (std::is_void_v<Value>) {
        uint64_t word = 0;
        memcpy(&word, argument, sizeof word);
        return head + site.fixture.Name(word);
      } else if constexpr (std::is_same_v<Value, unsigned long long>) {
        return head + site.fixture.Name(*argument);
      } else if constexpr (std::is_arithmetic_v<Value>) {
        return head + std::to_string(*argument);
      } else {
        return head + DescribeBytes(argument, sizeof(Value));
      }
    }
  }
}

void Report(const std::string& call, const std::string& what, CUresult result, CUresult after,
            const std::string& outputs);

template <typename... P>
class Probe {
 public:
  Probe(Fixture* fixture, const char* call, CUresult (*function)(P...),
        std::array<const char*, sizeof...(P)> names)
      : fixture_(*fixture), call_(call), function_(function), names_(names) {}

  void Run() {
    Once("right", [](auto&) {});
    VaryAll(std::index_sequence_for<P...>());
  }

 private:
  using Arguments = std::tuple<P...>;

  Site SiteOf(size_t index) const { return {fixture_, call_, names_[index], index}; }

  template <size_t... I>
  void VaryAll(std::index_sequence<I...>) {
    (VaryOne<I>(), ...);
  }

  template <size_t I>
  void VaryOne() {
    using T = std::tuple_element_t<I, Arguments>;
    fixture_.Prepare();  // what there is to try depends on what is right
    for (const Other<T>& other : AllOthers<T>(SiteOf(I))) {
      Once(std::string(names_[I]) + "=" + other.label,
           [&](Arguments& arguments) { other.make(std::get<I>(arguments)); });
    }
  }

  template <size_t... I>
  Arguments RightOnes(std::index_sequence<I...>) {
    return Arguments{Right<P>(SiteOf(I))...};
  }

  template <size_t... I>
  std::string Outputs(const Arguments& arguments, std::index_sequence<I...>) {
    return (std::string() + ... + Describe<P>(SiteOf(I), std::get<I>(arguments)));
  }

  template <typename Change>
  void Once(const std::string& what, const Change& change) {
    fixture_.Prepare();
    constexpr auto kAll = std::index_sequence_for<P...>();
    Arguments arguments = RightOnes(kAll);
    change(arguments);
    const CUresult result = std::apply(function_, arguments);
    const std::string outputs = result == CUDA_SUCCESS ? Outputs(arguments, kAll) : "";
    const CUresult after = cuCtxSynchronize();
    Report(call_, what, result, after, outputs);
    if (result == CUDA_SUCCESS || after != CUDA_SUCCESS) fixture_.Reset();
  }

  Fixture& fixture_;
  const std::string call_;
  CUresult (*const function_)(P...);
  const std::array<const char*, sizeof...(P)> names_;
};

template <typename... P, typename... Names>
void DriveOne(Fixture* fixture, const char* call, CUresult (*function)(P...), Names... names) {
  static_assert(sizeof...(P) == sizeof...(Names));
  Probe<P...>(fixture, call, function, {names...}).Run();
}

}  // namespace smolvm::remoting
