# The probe, in both its forms, in a machine that the launcher starts. A sanitized shim would need its runtime there.
if(NOT SMOLVM_SANITIZE AND TARGET smolvm AND TARGET smolvm_guest_cuda AND TARGET smolvm-cuda-worker)
  smolvm_test(probe_vm_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/probe_vm_test.cc LIBS
    LABELS vm TIMEOUT 1200)
  add_dependencies(probe_vm_test smolvm smolvm-machine-agent smolvm-vsock-device smolvm-cuda-daemon
    smolvm-cuda-worker smolvm_guest_cuda smolvm_cuda_emulation cuda-probe)
  target_compile_definitions(probe_vm_test PRIVATE
    KERNELS_RUN=$<BOOL:${SMOLVM_WITH_LLVM}>
    SCRIPTS="${CMAKE_SOURCE_DIR}/scripts"
    SMOLVM="$<TARGET_FILE:smolvm>"
    CUDA_PROBE="$<TARGET_FILE:cuda-probe>")
endif()
