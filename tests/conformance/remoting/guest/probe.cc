#include "tests/conformance/remoting/guest/probe.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tests/conformance/remoting/guest/command.h"

namespace smolvm::remoting {
namespace {

constexpr char kPtx[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .global .align 4 .u32 k2 = 7;\n"
    ".visible .entry k() { ret; }\n"
    ".visible .entry p(.param .u64 a, .param .u32 b) { ret; }\n";

bool Is(const std::string& text, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(), [&](const char* word) { return text == word; });
}

template <typename T>
T& In(const Site& site) {
  return *reinterpret_cast<T*>(site.fixture.Buffer(site.index));
}

// A parameter that counts what an array holds: the buffers hold one of each.
bool IsCount(const Site& site) {
  return Is(site.name, {"numOptions", "numJitOptions", "numLibraryOptions", "numAttributes"});
}

bool IsFlags(const Site& site) { return Is(site.name, {"flags", "Flags"}); }

bool IsDevice(const Site& site) {
  return Is(site.name, {"dev", "device", "srcDevice", "dstDevice", "peerDev", "ordinal"});
}

void Fill(const Site& site, CUDA_MEMCPY2D* copy) {
  copy->srcMemoryType = CU_MEMORYTYPE_HOST;
  copy->srcHost = site.fixture.Buffer(15);
  copy->dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy->dstDevice = site.fixture.memory();
  copy->WidthInBytes = 8;
  copy->Height = 2;
}

template <typename Copy>
void Fill3D(const Site& site, Copy* copy) {
  copy->srcMemoryType = CU_MEMORYTYPE_HOST;
  copy->srcHost = site.fixture.Buffer(15);
  copy->dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy->dstDevice = site.fixture.memory();
  copy->WidthInBytes = 8;
  copy->Height = 2;
  copy->Depth = 1;
}

// Adds what `change` makes of the right structure.
template <typename T, typename Change>
void Add(const Site& site, const std::string& label, Others<T>* others, Change change) {
  using Value = std::remove_const_t<std::remove_pointer_t<T>>;
  others->push_back({label, [site, change](T& argument) {
                       auto& value = In<Value>(site);
                       change(value);
                       argument = &value;
                     }});
}

template <typename T>
void VaryCopy(const Site& site, Others<T>* others) {
  for (const auto& [name, type] : EveryValue<CUmemorytype>()) {
    const CUmemorytype chosen = type;
    Add(site, "from:" + name, others, [chosen](auto& copy) { copy.srcMemoryType = chosen; });
    Add(site, "to:" + name, others, [chosen](auto& copy) { copy.dstMemoryType = chosen; });
  }
  Add(site, "empty", others, [](auto& copy) { copy.WidthInBytes = 0; });
}

}  // namespace

void RunHostFunction(void*) {}
void RunCallback(CUstream, CUresult, void*) {}
size_t NoSharedMemory(int) { return 0; }

void Fixture::Prepare() {
  for (CUcontext popped = nullptr; cuCtxPopCurrent_v2(&popped) == CUDA_SUCCESS;) {
  }
  if (context_) {
    OK(cuCtxPushCurrent_v2(context_));
  } else {
    OK(cuCtxCreate_v2(&context_, 0, 0));
  }
  for (auto& buffer : buffers_) {
    if (buffer) memset(buffer.get(), 0, kBytes);
  }
}

void Fixture::Reset() {
  for (CUcontext popped = nullptr; cuCtxPopCurrent_v2(&popped) == CUDA_SUCCESS;) {
  }
  if (link_) cuLinkDestroy(link_);
  if (library_) cuLibraryUnload(library_);
  if (pool_) cuMemPoolDestroy(pool_);
  cuCtxDestroy_v2(context_);
  while (cuDevicePrimaryCtxRelease_v2(0) == CUDA_SUCCESS) {
  }
  cuDevicePrimaryCtxSetFlags_v2(0, 0);
  cuMemHostUnregister(buffers_[14].get());
  context_ = nullptr, stream_ = nullptr, event_ = nullptr, module_ = nullptr, library_ = nullptr;
  function_ = nullptr, kernel_ = nullptr, pool_ = nullptr, link_ = nullptr, memory_ = 0;
  pinned_ = nullptr;
}

CUstream Fixture::stream() {
  if (!stream_) OK(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
  return stream_;
}

CUevent Fixture::event() {
  if (!event_) OK(cuEventCreate(&event_, 0));
  return event_;
}

CUmodule Fixture::module() {
  if (!module_) OK(cuModuleLoadData(&module_, kPtx));
  return module_;
}

CUfunction Fixture::function() {
  if (!function_) OK(cuModuleGetFunction(&function_, module(), "k"));
  return function_;
}

CUlibrary Fixture::library() {
  if (!library_) OK(cuLibraryLoadData(&library_, kPtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
  return library_;
}

CUkernel Fixture::kernel() {
  if (!kernel_) OK(cuLibraryGetKernel(&kernel_, library(), "k"));
  return kernel_;
}

CUmemoryPool Fixture::pool() {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  if (!pool_) OK(cuMemPoolCreate(&pool_, &properties));
  return pool_;
}

CUlinkState Fixture::link() {
  if (!link_) {
    OK(cuLinkCreate_v2(0, nullptr, nullptr, &link_));
    OK(cuLinkAddData_v2(link_, CU_JIT_INPUT_PTX, const_cast<char*>(kPtx), sizeof kPtx, "first", 0,
                        nullptr, nullptr));
  }
  return link_;
}

// Its first word is 1 and the others are 0, so that what a stream waits for is there.
CUdeviceptr Fixture::memory() {
  if (!memory_) {
    OK(cuMemAlloc_v2(&memory_, kBytes));
    OK(cuMemsetD8_v2(memory_, 0, kBytes));
    OK(cuMemsetD8_v2(memory_, 1, 1));
  }
  return memory_;
}

void* Fixture::pinned() {
  if (!pinned_) OK(cuMemHostAlloc(&pinned_, kBytes, CU_MEMHOSTALLOC_PORTABLE));
  return pinned_;
}

void* Fixture::registered() {
  char* buffer = Buffer(14);
  const CUresult result = cuMemHostRegister_v2(buffer, kBytes, 0);
  CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  return buffer;
}

char* Fixture::Buffer(size_t index) {
  if (!buffers_[index]) buffers_[index] = std::make_unique<char[]>(kBytes);
  return buffers_[index].get();
}

std::string Fixture::Name(uint64_t value) const {
  const auto is = [&](auto* handle) {
    return handle != nullptr && value == reinterpret_cast<uint64_t>(handle);
  };
  if (is(context_)) return "context";
  if (is(pinned_)) return "pinned";
  if (memory_ && value >= memory_ && value < memory_ + kBytes)
    return "memory+" + std::to_string(value - memory_);
  // Other addresses and handles differ from process to process.
  return value >> 32 == 0 ? std::to_string(value) : "large";
}

int64_t RightNumber(const Site& site) {
  const std::string& name = site.name;
  if (site.call == "cuGetProcAddress" || site.call == "cuGetProcAddress_v2")
    return name == "cudaVersion" ? 12000 : 0;
  if (name == "type" && site.call.starts_with("cuLinkAdd")) return CU_JIT_INPUT_PTX;
  if (IsCount(site)) return 1;
  if (site.call == "cuPointerSetAttribute" && name == "attribute")
    return CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
  if (Is(name, {"attribute"})) return CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
  if (name == "attr" && site.call.starts_with("cuMemPool"))
    return CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
  if (name == "attr") return CU_LAUNCH_ATTRIBUTE_PRIORITY;
  if (name == "attrib" && site.call.find("SetAttribute") != std::string::npos)
    return CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  if (name == "attrib" && site.call == "cuDeviceGetAttribute") return CU_DEVICE_ATTRIBUTE_WARP_SIZE;
  if (name == "attrib" && site.call == "cuDeviceGetP2PAttribute")
    return CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED;
  if (name == "limit") return CU_LIMIT_STACK_SIZE;
  if (name == "type" && site.call.find("ExecAffinity") != std::string::npos)
    return CU_EXEC_AFFINITY_TYPE_SM_COUNT;
  if (name == "format") return CU_AD_FORMAT_FLOAT;
  if (Is(name, {"dptr", "dstDevice", "addr", "ptr", "src", "dst"}) ||
      (name == "srcDevice" && site.call.starts_with("cuMemcpy")))
    return site.call.starts_with("cuDevice") ? 0 : static_cast<int64_t>(site.fixture.memory());
  if (IsDevice(site) || IsFlags(site)) return 0;
  if (name == "size") return sizeof kPtx;
  if (Is(name, {"bytesize", "dynamicSMemSize", "minBytesToKeep"}))
    return name == "bytesize" ? 4096 : 0;
  if (Is(name, {"paramIndex", "sharedMemBytes", "priority", "blockSizeLimit", "uc", "us", "ui",
                "numParams", "config", "error", "val"}))
    return 0;
  if (Is(name, {"value"})) return site.call.starts_with("cuStream") ? 1 : 1024;
  if (Is(name, {"dstPitch", "ByteCount", "len", "blockSize"})) return 64;
  if (name == "ElementSizeBytes") return 4;
  if (Is(name, {"WidthInBytes", "Width", "N"})) return 8;
  return 1;
}

std::vector<uint64_t> OtherNumbers(const Site& site, size_t bytes) {
  std::vector<uint64_t> numbers;
  if (IsFlags(site)) {
    for (unsigned bit = 0; bit < 8 * bytes; ++bit) numbers.push_back(uint64_t{1} << bit);
    for (const uint64_t more : {0ull, 3ull, 5ull, 6ull, 7ull, 9ull, 10ull, 12ull, 15ull, ~0ull})
      numbers.push_back(more);
    // A wait that nothing ends: neither bit of the word is in the value.
    if (site.call.starts_with("cuStreamWaitValue")) std::erase(numbers, ~0ull);
    return numbers;
  }
  if (IsDevice(site) && bytes == sizeof(int)) return {1, 99, ~0ull};
  if (IsCount(site)) return {0};
  if (site.call.starts_with("cuStreamWaitValue") && site.name == "value") return {0};
  if (bytes == sizeof(CUdeviceptr) &&
      static_cast<CUdeviceptr>(RightNumber(site)) == site.fixture.memory())
    return Is(site.call, {"cuMemcpy", "cuMemcpyAsync"}) ? std::vector<uint64_t>{0}
                                                        // any other address is the program's own
                                                        : std::vector<uint64_t>{0, 0x1234};
  if (site.name == "cudaVersion") return {0, 2000, 11030, 13000, 13010, 99000, ~0ull};
  if (bytes == 8) return {0, 1, 2, 3, 4};
  return {0, 1, 2, 3, 4, 8, 16, 32, 1025, ~0ull};
}

const char* RightText(const Site& site) {
  if (site.name == "pciBusId") return "0000:00:00.0";
  if (site.name == "symbol") return "cuMemAlloc";
  if (Is(site.name, {"fname", "path", "fileName"})) {
    static const std::string file = [] {
      char path[] = "/tmp/smolvm-probe-XXXXXX";
      const int handle = mkstemp(path);
      CHECK(handle >= 0 && write(handle, kPtx, sizeof kPtx - 1) == sizeof kPtx - 1);
      close(handle);
      static std::string kept;
      kept = path;
      atexit([] { unlink(kept.c_str()); });
      return kept;
    }();
    return file.c_str();
  }
  return site.call.ends_with("GetGlobal") || site.call.ends_with("GetGlobal_v2") ? "k2" : "k";
}

bool MayBeMissing(const Site& site) {
  return Is(site.name, {"kernelParams", "extra", "paramsArray", "ctxCreateParams", "userData"});
}

void* RightPointer(const Site& site) {
  char* buffer = site.fixture.Buffer(site.index);
  if (Is(site.name, {"image", "code", "fatCubin"}) ||
      (site.name == "data" && site.call == "cuLinkAddData_v2"))
    return const_cast<char*>(kPtx);
  if (site.name == "p") {
    if (site.call == "cuMemHostRegister_v2") return buffer;
    return site.call == "cuMemHostUnregister" ? site.fixture.registered() : site.fixture.pinned();
  }
  if (site.name == "attributes") In<CUpointer_attribute>(site) = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
  if (site.call == "cuPointerGetAttributes" && site.name == "data")
    In<void*>(site) = site.fixture.Buffer(13);
  if (site.name == "config") {
    auto& config = In<CUlaunchConfig>(site);
    config.gridDimX = config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = config.blockDimY = config.blockDimZ = 1;
    config.hStream = site.fixture.stream();
  }
  if (site.name == "pCopy") {
    if (site.call.starts_with("cuMemcpy2D"))
      Fill(site, &In<CUDA_MEMCPY2D>(site));
    else if (site.call.starts_with("cuMemcpy3DPeer"))
      Fill3D(site, &In<CUDA_MEMCPY3D_PEER>(site));
    else
      Fill3D(site, &In<CUDA_MEMCPY3D>(site));
  }
  if (site.name == "poolProps") {
    In<CUmemPoolProps>(site).allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    In<CUmemPoolProps>(site).location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  }
  return buffer;
}

void Vary(const Site& site, Others<const CUDA_MEMCPY2D*>* others) { VaryCopy(site, others); }
void Vary(const Site& site, Others<const CUDA_MEMCPY3D*>* others) { VaryCopy(site, others); }
void Vary(const Site& site, Others<const CUDA_MEMCPY3D_PEER*>* others) { VaryCopy(site, others); }

void Vary(const Site& site, Others<const CUmemPoolProps*>* others) {
  for (const auto& [name, value] : EveryValue<CUmemAllocationType>()) {
    const auto chosen = value;
    Add(site, name, others, [chosen](auto& properties) { properties.allocType = chosen; });
  }
  for (const auto& [name, value] : EveryValue<CUmemAllocationHandleType>()) {
    const auto chosen = value;
    Add(site, name, others, [chosen](auto& properties) { properties.handleTypes = chosen; });
  }
  for (const auto& [name, value] : EveryValue<CUmemLocationType>()) {
    const auto chosen = value;
    Add(site, name, others, [chosen](auto& properties) { properties.location.type = chosen; });
  }
  Add(site, "device 1", others, [](auto& properties) { properties.location.id = 1; });
  Add(site, "usage 1", others, [](auto& properties) { properties.usage = 1; });
  Add(site, "reserved", others, [](auto& properties) { properties.reserved[0] = 1; });
  Add(site, "maxSize", others, [](auto& properties) { properties.maxSize = 4096; });
}

void Vary(const Site& site, Others<const CUlaunchConfig*>* others) {
  for (const auto& [name, value] : EveryValue<CUlaunchAttributeID>()) {
    const auto chosen = value;
    Add(site, name, others, [site, chosen](auto& config) {
      auto* attribute = reinterpret_cast<CUlaunchAttribute*>(site.fixture.Buffer(12));
      attribute->id = chosen;
      config.attrs = attribute;
      config.numAttrs = 1;
    });
  }
  Add(site, "attributes nowhere", others, [](auto& config) { config.numAttrs = 1; });
  Add(site, "no grid", others, [](auto& config) { config.gridDimX = 0; });
}

void Vary(const Site& site, Others<const CUstreamAttrValue*>* others) {
  for (const int value : {-6, -1, 1, 2, 3, 4})
    Add(site, std::to_string(value), others, [value](auto& chosen) { chosen.priority = value; });
}

void Vary(const Site& site, Others<CUctxCreateParams*>* others) {
  Add(site, "empty", others, [](auto&) {});
  Add(site, "affinity", others, [](auto& params) { params.numExecAffinityParams = 1; });
}

std::string DescribeBytes(const void* bytes, size_t size) {
  std::string text;
  char hex[3];
  for (size_t i = 0; i < size && i < 64; ++i) {
    snprintf(hex, sizeof hex, "%02x", static_cast<const unsigned char*>(bytes)[i]);
    text += hex;
  }
  return text;
}

std::string DescribeText(const char* text) {
  return text ? "\"" + std::string(text, strnlen(text, 256)) + "\"" : "none";
}

bool LeavesTheSame(const Site& site) {
  // Numbers of the process, of the clock, and of what others have left of the device.
  return site.name != "p" &&  // which may be freed by now
         !Is(site.call, {"cuCtxGetId", "cuStreamGetId", "cuEventElapsedTime",
                         "cuEventElapsedTime_v2", "cuMemGetInfo_v2"});
}

void Report(const std::string& call, const std::string& what, CUresult result, CUresult after,
            const std::string& outputs) {
  const char* name = nullptr;
  cuGetErrorName(result, &name);
  printf("%s %s: %s%s", call.c_str(), what.c_str(), name ? name : "no name", outputs.c_str());
  if (after != CUDA_SUCCESS) printf(" then %d", after);
  printf("\n");
  fflush(stdout);
}

}  // namespace smolvm::remoting
