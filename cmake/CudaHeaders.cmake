# Finds the CUDA driver API headers (13.0 or newer) and makes the target smolvm::cuda_headers.
# Looked for in: -DSMOLVM_CUDA_INCLUDE=…, $CUDA_HOME, $CUDA_PATH, /usr/local/cuda, nvcc's toolkit, and the cache that
# scripts/setup fills from the nvidia-cuda-runtime wheel.

set(cuda_cache "$ENV{XDG_CACHE_HOME}")
if(NOT cuda_cache)
  set(cuda_cache "$ENV{HOME}/.cache")
endif()
find_path(SMOLVM_CUDA_INCLUDE NAMES cuda.h
  HINTS $ENV{CUDA_HOME}/include $ENV{CUDA_PATH}/include /usr/local/cuda/include ${cuda_cache}/smolvm-cuda/cuda-headers/include
  DOC "Folder that holds cuda.h and cudaTypedefs.h")
if(NOT SMOLVM_CUDA_INCLUDE OR NOT EXISTS ${SMOLVM_CUDA_INCLUDE}/cudaTypedefs.h)
  message(FATAL_ERROR
    "CUDA driver API headers (cuda.h, cudaTypedefs.h; version 13.0 or newer) were not found.\n"
    "Install a CUDA toolkit (its package cuda-driver-dev-13-0 or cuda-cudart-dev-13-0 is enough), or run scripts/setup, "
    "which can unpack them from the nvidia-cuda-runtime wheel, or pass -DSMOLVM_CUDA_INCLUDE=/path/to/include.")
endif()
file(STRINGS ${SMOLVM_CUDA_INCLUDE}/cuda.h cuda_version REGEX "^#define CUDA_VERSION [0-9]+")
string(REGEX MATCH "[0-9]+$" SMOLVM_CUDA_VERSION "${cuda_version}")
if(SMOLVM_CUDA_VERSION LESS 13000)
  message(FATAL_ERROR "${SMOLVM_CUDA_INCLUDE}/cuda.h is of CUDA version ${SMOLVM_CUDA_VERSION}; 13000 (13.0) or newer is needed. Run scripts/setup.")
endif()
message(STATUS "CUDA driver API headers: ${SMOLVM_CUDA_INCLUDE} (${SMOLVM_CUDA_VERSION})")

add_library(smolvm_cuda_headers INTERFACE)
add_library(smolvm::cuda_headers ALIAS smolvm_cuda_headers)
target_include_directories(smolvm_cuda_headers SYSTEM INTERFACE ${SMOLVM_CUDA_INCLUDE})

# The toolkit's link-time stub library, where there is one: parity tests compare export lists with it.
find_file(SMOLVM_CUDA_STUB NAMES libcuda.so NO_DEFAULT_PATH
  HINTS ${SMOLVM_CUDA_INCLUDE}/../lib64/stubs ${SMOLVM_CUDA_INCLUDE}/../lib/stubs ${SMOLVM_CUDA_INCLUDE}/../../../lib64/stubs)
