#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "tests/unit/emulation_api/support.h"

namespace smolvm::emulation {
namespace {

using ModuleTest = EmulationTest;

TEST_F(ModuleTest, FindsFunctionsAndGlobals) {
  const CUmodule module = Load();
  CUfunction function = nullptr, again = nullptr;
  EXPECT_CUDA(cuModuleGetFunction(&function, module, "echo"));
  EXPECT_CUDA(cuModuleGetFunction(&again, module, "echo"));
  EXPECT_EQ(function, again);
  EXPECT_EQ(cuModuleGetFunction(&function, module, "nothing"), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(cuModuleGetFunction(&function, Garbage<CUmodule>(), "echo"), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuModuleGetFunction(nullptr, module, "echo"), CUDA_ERROR_INVALID_VALUE);
  const char* name = nullptr;
  EXPECT_CUDA(cuFuncGetName(&name, again));
  EXPECT_STREQ(name, "echo");
  CUmodule of = nullptr;
  EXPECT_CUDA(cuFuncGetModule(&of, again));
  EXPECT_EQ(of, module);
  CUdeviceptr address = 0;
  size_t bytes = 0;
  EXPECT_CUDA(cuModuleGetGlobal(&address, &bytes, module, "table"));
  EXPECT_EQ(bytes, 4096u);
  EXPECT_CUDA(cuModuleGetGlobal(nullptr, &bytes, module, "counter"));
  EXPECT_EQ(bytes, 4u);
  EXPECT_CUDA(cuModuleGetGlobal(&address, nullptr, module, "counter"));
  EXPECT_EQ(cuModuleGetGlobal(&address, &bytes, module, "nothing"), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(cuModuleGetGlobal(&address, &bytes, module, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CUDA(cuMemsetD32(address, 6, 1));
  EXPECT_EQ(Word(address), 6u);
}

TEST_F(ModuleTest, ListsItsFunctions) {
  const CUmodule module = Load();
  unsigned count = 0;
  EXPECT_CUDA(cuModuleGetFunctionCount(&count, module));
  EXPECT_EQ(count, 12u);
  std::vector<CUfunction> functions(count);
  EXPECT_CUDA(cuModuleEnumerateFunctions(functions.data(), count, module));
  CUfunction first = nullptr;
  EXPECT_CUDA(cuModuleGetFunction(&first, module, "store"));
  EXPECT_EQ(functions[0], first);
  size_t offset = 0, size = 0;
  EXPECT_CUDA(cuFuncGetParamInfo(first, 1, &offset, &size));
  EXPECT_EQ(offset, 8u);
  EXPECT_EQ(size, 4u);
  EXPECT_EQ(cuFuncGetParamInfo(first, 2, &offset, &size), CUDA_ERROR_INVALID_VALUE);
  int value = 0;
  EXPECT_CUDA(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_PTX_VERSION, first));
  EXPECT_EQ(value, 75);
  EXPECT_CUDA(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_BINARY_VERSION, first));
  EXPECT_EQ(value, 90);
  EXPECT_EQ(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX, first), CUDA_ERROR_INVALID_VALUE);
  CUfunctionLoadingState state = CU_FUNCTION_LOADING_STATE_MAX;
  EXPECT_CUDA(cuFuncIsLoaded(&state, first));
  EXPECT_EQ(state, CU_FUNCTION_LOADING_STATE_UNLOADED);
  EXPECT_CUDA(cuFuncLoad(first));
  EXPECT_CUDA(cuFuncIsLoaded(&state, first));
  EXPECT_EQ(state, CU_FUNCTION_LOADING_STATE_LOADED);
}

TEST_F(ModuleTest, UnloadEndsHandlesAndMemory) {
  const CUmodule module = Load();
  CUfunction function = nullptr;
  CUdeviceptr address = 0;
  EXPECT_CUDA(cuModuleGetFunction(&function, module, "empty"));
  EXPECT_CUDA(cuModuleGetGlobal(&address, nullptr, module, "counter"));
  EXPECT_CUDA(cuModuleUnload(module));
  EXPECT_EQ(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
            CUDA_ERROR_INVALID_HANDLE);
  uint32_t word = 0;
  EXPECT_EQ(cuMemcpyDtoH(&word, address, 4), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ModuleTest, FillsTheLogs) {
  char info[64] = "", error[8] = "";
  CUjit_option options[] = {CU_JIT_INFO_LOG_BUFFER,  CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                            CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
                            CU_JIT_LOG_VERBOSE,      CU_JIT_WALL_TIME};
  void* values[] = {info,
                    reinterpret_cast<void*>(sizeof(info)),
                    error,
                    reinterpret_cast<void*>(sizeof(error)),
                    reinterpret_cast<void*>(1),
                    nullptr};
  CUmodule module = nullptr;
  ASSERT_CUDA(cuModuleLoadDataEx(&module, kImage, 6, options, values));
  EXPECT_STREQ(info, "loaded, verbosely");
  EXPECT_EQ(reinterpret_cast<size_t>(values[1]), std::strlen(info));
  EXPECT_STREQ(error, "");
  values[1] = reinterpret_cast<void*>(sizeof(info));
  values[3] = reinterpret_cast<void*>(sizeof(error));
  EXPECT_EQ(cuModuleLoadDataEx(&module, "//fake\nbad 218\n", 6, options, values),
            CUDA_ERROR_INVALID_PTX);
  EXPECT_STREQ(error, "bad ima");  // cut to the buffer
  EXPECT_EQ(reinterpret_cast<size_t>(values[3]), 7u);
  options[0] = static_cast<CUjit_option>(500);
  EXPECT_EQ(cuModuleLoadDataEx(&module, kImage, 6, options, values), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuModuleLoadDataEx(&module, kImage, 6, nullptr, values), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ModuleTest, BadImages) {
  CUmodule module = nullptr;
  EXPECT_EQ(cuModuleLoadData(&module, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuModuleLoadData(nullptr, kImage), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuModuleLoadData(&module, "garbage"), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(cuModuleLoadData(&module, "//fake\nbad 209\n"), CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(cuModuleLoadData(&module, "//fake\nbad 218\n"), CUDA_ERROR_INVALID_PTX);
}

TEST_F(ModuleTest, LoadsFiles) {
  char path[] = "/tmp/emulation-api-XXXXXX";
  const int fd = mkstemp(path);
  ASSERT_GE(fd, 0);
  close(fd);
  std::ofstream(path) << kImage;
  CUmodule module = nullptr;
  CUlibrary library = nullptr;
  EXPECT_CUDA(cuModuleLoad(&module, path));
  EXPECT_CUDA(cuLibraryLoadFromFile(&library, path, nullptr, nullptr, 0, nullptr, nullptr, 0));
  EXPECT_CUDA(cuLibraryUnload(library));
  std::ofstream(path, std::ios::trunc | std::ios::binary)
      .write(
          "\x7f"
          "ELF\x02\x01\x01",
          7);
  EXPECT_EQ(cuModuleLoad(&module, path), CUDA_ERROR_INVALID_IMAGE);  // ends before its header does
  std::ofstream(path, std::ios::trunc);
  EXPECT_EQ(cuModuleLoad(&module, path), CUDA_ERROR_INVALID_IMAGE);
  std::remove(path);
  EXPECT_EQ(cuModuleLoad(&module, path), CUDA_ERROR_FILE_NOT_FOUND);
  EXPECT_EQ(cuModuleLoad(&module, "/"), CUDA_ERROR_FILE_NOT_FOUND);
}

TEST_F(ModuleTest, LibrariesNeedNoContext) {
  CUcontext popped = nullptr;
  ASSERT_CUDA(cuCtxPopCurrent(&popped));
  CUlibrary library = nullptr;
  ASSERT_CUDA(cuLibraryLoadData(&library, kImage, nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUkernel kernel = nullptr;
  EXPECT_CUDA(cuLibraryGetKernel(&kernel, library, "store"));
  EXPECT_EQ(cuLibraryGetKernel(&kernel, library, "nothing"), CUDA_ERROR_NOT_FOUND);
  const char* name = nullptr;
  EXPECT_CUDA(cuKernelGetName(&name, kernel));
  EXPECT_STREQ(name, "store");
  size_t offset = 0;
  EXPECT_CUDA(cuKernelGetParamInfo(kernel, 1, &offset, nullptr));
  EXPECT_EQ(offset, 8u);
  CUlibrary of = nullptr;
  EXPECT_CUDA(cuKernelGetLibrary(&of, kernel));
  EXPECT_EQ(of, library);
  unsigned count = 0;
  EXPECT_CUDA(cuLibraryGetKernelCount(&count, library));
  EXPECT_EQ(count, 12u);
  int value = 0;
  EXPECT_CUDA(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 60 << 10,
                                   kernel, device_));
  EXPECT_CUDA(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel,
                                   device_));
  EXPECT_EQ(value, 60 << 10);
  CUfunction function = nullptr;
  EXPECT_EQ(cuKernelGetFunction(&function, kernel), CUDA_ERROR_INVALID_CONTEXT);
  ASSERT_CUDA(cuCtxPushCurrent(popped));
  EXPECT_CUDA(cuKernelGetFunction(&function, kernel));
  EXPECT_CUDA(
      cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function));
  EXPECT_EQ(value, 60 << 10);
  CUmodule module = nullptr;
  EXPECT_CUDA(cuLibraryGetModule(&module, library));
  EXPECT_EQ(cuModuleUnload(module), CUDA_ERROR_NOT_PERMITTED);
  CUdeviceptr address = 0;
  size_t bytes = 0;
  EXPECT_EQ(cuLibraryGetManaged(&address, &bytes, library, "counter"), CUDA_ERROR_NOT_FOUND);
  EXPECT_CUDA(cuLibraryGetGlobal(&address, &bytes, library, "counter"));
  EXPECT_CUDA(cuLibraryUnload(library));
  EXPECT_EQ(cuKernelGetName(&name, kernel), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
            CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(ModuleTest, EachContextHasItsOwnVariables) {
  CUlibrary library = nullptr;
  ASSERT_CUDA(cuLibraryLoadData(&library, kImage, nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUdeviceptr here = 0, there = 0;
  EXPECT_CUDA(cuLibraryGetGlobal(&here, nullptr, library, "counter"));
  CUcontext other = nullptr;
  ASSERT_CUDA(cuCtxCreate(&other, nullptr, 0, device_));
  EXPECT_CUDA(cuLibraryGetGlobal(&there, nullptr, library, "counter"));
  EXPECT_NE(here, there);
  EXPECT_CUDA(cuCtxDestroy(other));
  EXPECT_CUDA(cuLibraryUnload(library));
}

}  // namespace
}  // namespace smolvm::emulation
