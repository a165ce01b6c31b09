# smolvm_cuda_exports(TARGET): gives the shared library TARGET the whole export list of libcuda.so.1. Names that TARGET
# does not define answer CUDA_ERROR_NOT_SUPPORTED; nothing else is exported. TARGET's own definitions must come from
# its object files (not from a static library, whose members a weak definition does not call for).
#
# smolvm::cuda_exports is the library behind it: cuGetProcAddress's table (protocol/gen/exports/proc_address.h) and
# the unsupported-call log (unsupported.h).
include_guard(GLOBAL)

set(exports_source ${CMAKE_SOURCE_DIR}/protocol/gen/exports)
set(exports_generated ${CMAKE_BINARY_DIR}/generated/exports)

if(NOT TARGET smolcuda-exports)  # that of SMOLVM_HOST_TOOLS
  add_executable(smolcuda-exports ${exports_source}/exports_main.cc ${exports_source}/export_model.cc)
endif()
add_custom_command(
  OUTPUT ${exports_generated}/unsupported_stubs.cc ${exports_generated}/cuda_exports.map
         ${exports_generated}/proc_address_table.inc ${exports_generated}/enumerators.h
  COMMAND smolcuda-exports ${exports_source}/exports.txt ${SMOLVM_CUDA_INCLUDE} ${exports_generated}
  DEPENDS smolcuda-exports ${exports_source}/exports.txt ${SMOLVM_CUDA_INCLUDE}/cudaTypedefs.h
          ${SMOLVM_CUDA_INCLUDE}/cudaProfilerTypedefs.h VERBATIM)
add_custom_target(smolvm_cuda_exports_generated DEPENDS ${exports_generated}/cuda_exports.map)

add_library(smolvm_cuda_exports_lib STATIC ${exports_source}/proc_address.cc ${exports_source}/error_names.cc ${exports_source}/unsupported.cc)
add_library(smolvm::cuda_exports ALIAS smolvm_cuda_exports_lib)
set_target_properties(smolvm_cuda_exports_lib PROPERTIES OUTPUT_NAME smolvm_cuda_exports)
target_include_directories(smolvm_cuda_exports_lib PRIVATE ${exports_generated})
target_link_libraries(smolvm_cuda_exports_lib PUBLIC smolvm::log)
add_dependencies(smolvm_cuda_exports_lib smolvm_cuda_exports_generated)

add_library(smolvm_cuda_export_stubs OBJECT ${exports_generated}/unsupported_stubs.cc)
add_dependencies(smolvm_cuda_export_stubs smolvm_cuda_exports_generated)

function(smolvm_cuda_exports tgt)
  set(map ${CMAKE_BINARY_DIR}/generated/exports/cuda_exports.map)
  target_sources(${tgt} PRIVATE $<TARGET_OBJECTS:smolvm_cuda_export_stubs>)
  target_link_libraries(${tgt} PRIVATE smolvm::cuda_exports)
  # -Bsymbolic: a preloaded or second libcuda must not take over this library's calls to itself.
  target_link_options(${tgt} PRIVATE LINKER:--version-script=${map},-Bsymbolic)
  set_property(TARGET ${tgt} APPEND PROPERTY LINK_DEPENDS ${map})
  add_dependencies(${tgt} smolvm_cuda_exports_generated)
endfunction()
