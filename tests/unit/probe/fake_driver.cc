// A driver library whose device is the host's memory and whose one kernel is vector_add: enough for
// the probe's tests. FAKE_DRIVER_FAIL holds words that make it fail: "NAME=CODE" gives the call
// NAME that error code; "corrupt" flips the last byte of each copy back; "hang", "crash" and "exit"
// happen in cuInit; "noise" prints to stdout there.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

std::string Words() {
  const char* words = std::getenv("FAKE_DRIVER_FAIL");
  return std::string(" ") + (words != nullptr ? words : "") + " ";
}
bool Wants(const std::string& word) { return Words().find(" " + word + " ") != std::string::npos; }

int CodeOf(const char* name) {
  const std::string words = Words();
  const std::size_t at = words.find(std::string(" ") + name + "=");
  return at == std::string::npos ? 0 : std::atoi(words.c_str() + words.find('=', at) + 1);
}

int Number(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::atoi(text) : otherwise;
}

int module_tag;

void VectorAdd(void** parameters) {
  float* pointers[3];
  std::uint32_t count = 0;
  for (int i = 0; i < 3; ++i) std::memcpy(&pointers[i], parameters[i], sizeof(float*));
  std::memcpy(&count, parameters[3], sizeof(count));
  for (std::uint32_t i = 0; i < count; ++i) pointers[2][i] = pointers[0][i] + pointers[1][i];
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

int cuInit(unsigned) {
  if (Wants("noise")) {
    std::printf("gpu=not one\n");
    std::fflush(stdout);
  }
  if (Wants("hang")) sleep(60);
  if (Wants("crash")) std::abort();
  if (Wants("exit")) _exit(7);
  return CodeOf("cuInit");
}
int cuDriverGetVersion(int* version) {
  *version = 13000;
  return CodeOf("cuDriverGetVersion");
}
int cuDeviceGetCount(int* count) {
  // As a real driver does.
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  *count = visible != nullptr && *visible == '\0' ? 0 : Number("FAKE_DRIVER_DEVICES", 1);
  return CodeOf("cuDeviceGetCount");
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return CodeOf("cuDeviceGet");
}
int cuDeviceGetName(char* name, int length, int device) {
  std::snprintf(name, static_cast<std::size_t>(length),
                device == 0 ? "NVIDIA Fake" : "NVIDIA Fake %d", device);
  return CodeOf("cuDeviceGetName");
}
int cuCtxCreate_v2(void** context, unsigned, int) {
  *context = &module_tag;
  return CodeOf("cuCtxCreate");
}
int cuCtxDestroy_v2(void*) { return 0; }
int cuCtxSynchronize() { return CodeOf("cuCtxSynchronize"); }
int cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  *free = *total = std::size_t{22587} << 20;
  return CodeOf("cuMemGetInfo");
}
int cuMemAlloc_v2(std::uint64_t* pointer, std::size_t bytes) {
  if (CodeOf("cuMemAlloc") != 0) return CodeOf("cuMemAlloc");
  *pointer = reinterpret_cast<std::uintptr_t>(std::malloc(bytes));
  return 0;
}
int cuMemFree_v2(std::uint64_t pointer) {
  std::free(reinterpret_cast<void*>(pointer));
  return CodeOf("cuMemFree");
}
int cuMemcpyHtoD_v2(std::uint64_t to, const void* from, std::size_t bytes) {
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return CodeOf("cuMemcpyHtoD");
}
int cuMemcpyDtoH_v2(void* to, std::uint64_t from, std::size_t bytes) {
  std::memcpy(to, reinterpret_cast<void*>(from), bytes);
  if (Wants("corrupt")) static_cast<unsigned char*>(to)[bytes - 1] ^= 1;
  return CodeOf("cuMemcpyDtoH");
}
int cuModuleLoadData(void** module, const void* image) {
  if (std::strstr(static_cast<const char*>(image), ".entry vector_add(") == nullptr) return 218;
  *module = &module_tag;
  return CodeOf("cuModuleLoadData");
}
int cuModuleUnload(void*) { return 0; }
int cuModuleGetFunction(void** function, void*, const char* name) {
  *function = &module_tag;
  return std::strcmp(name, "vector_add") == 0 ? CodeOf("cuModuleGetFunction") : 500;
}
int cuLaunchKernel(void*, unsigned grid, unsigned, unsigned, unsigned block, unsigned, unsigned,
                   unsigned, void*, void** parameters, void**) {
  std::uint32_t count = 0;
  std::memcpy(&count, parameters[3], sizeof(count));
  if (std::uint64_t{grid} * block < count) return 1;
  if (CodeOf("cuLaunchKernel") == 0) VectorAdd(parameters);
  return CodeOf("cuLaunchKernel");
}

}  // extern "C"
#pragma GCC visibility pop
