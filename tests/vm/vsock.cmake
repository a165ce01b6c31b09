if(TARGET smolvm-vsock-device AND TARGET smolvm_machine)
  # The guest's half is static and never sanitized, whatever this build is; so it has a command of
  # its own.
  set(guest ${CMAKE_BINARY_DIR}/tests/vsock_vm_guest)
  add_custom_command(OUTPUT ${guest}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/tests
    COMMAND ${CMAKE_CXX_COMPILER} -std=c++20 -O2 -static -Wall -Wextra -I${CMAKE_SOURCE_DIR}
      ${CMAKE_CURRENT_LIST_DIR}/vsock_vm_guest.cc -o ${guest}
    DEPENDS ${CMAKE_CURRENT_LIST_DIR}/vsock_vm_guest.cc ${CMAKE_CURRENT_LIST_DIR}/vsock_vm_ports.h)
  add_custom_target(vsock_vm_guest DEPENDS ${guest})

  smolvm_test(vsock_vm_test
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/vsock_vm_test.cc ${CMAKE_CURRENT_LIST_DIR}/direct_vm.cc
    LIBS smolvm::machine LABELS vm TIMEOUT 600)
  add_dependencies(vsock_vm_test smolvm-machine-agent vsock_vm_guest smolvm-vsock-device)
  target_compile_definitions(vsock_vm_test PRIVATE SMOLVM_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
    SMOLVM_AGENT="$<TARGET_FILE:smolvm-machine-agent>" SMOLVM_TEST_CACHE="${CMAKE_BINARY_DIR}/vm-cache"
    SMOLVM_VSOCK_VM_GUEST="${guest}" SMOLVM_VSOCK_DEVICE="$<TARGET_FILE:smolvm-vsock-device>")
endif()

# The daemon's own device, with the probe in the guest.
if(NOT SMOLVM_SANITIZE AND TARGET smolvm_machine AND TARGET smolvm-cuda-vsock AND TARGET smolvm-cuda-worker
    AND TARGET smolvm_guest_cuda AND TARGET cuda-probe)
  add_executable(daemon_vm_init ${CMAKE_CURRENT_LIST_DIR}/daemon_vm_init.cc)
  target_link_options(daemon_vm_init PRIVATE -static)
  set_target_properties(daemon_vm_init PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  smolvm_test(daemon_vm_test
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/daemon_vm_test.cc ${CMAKE_CURRENT_LIST_DIR}/direct_vm.cc
    LIBS smolvm::machine LABELS vm TIMEOUT 600)
  add_dependencies(daemon_vm_test smolvm-machine-agent daemon_vm_init smolvm-cuda-daemon smolvm-cuda-vsock
    smolvm-cuda-worker smolvm_guest_cuda smolvm_cuda_emulation cuda-probe)
  target_compile_definitions(daemon_vm_test PRIVATE SMOLVM_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
    SMOLVM_AGENT="$<TARGET_FILE:smolvm-machine-agent>" SMOLVM_TEST_CACHE="${CMAKE_BINARY_DIR}/vm-cache"
    KERNELS_RUN=$<BOOL:${SMOLVM_WITH_LLVM}>
    SMOLVM_DAEMON_VM_INIT="$<TARGET_FILE:daemon_vm_init>"
    SMOLVM_CUDA_DAEMON="$<TARGET_FILE:smolvm-cuda-daemon>"
    SMOLVM_GUEST_CUDA="$<TARGET_FILE:smolvm_guest_cuda>"
    SMOLVM_CUDA_PROBE="$<TARGET_FILE:cuda-probe>")
endif()
