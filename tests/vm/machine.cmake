if(TARGET smolvm AND TARGET smolvm-vsock-device)
  smolvm_test(machine_vm_test
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/machine_vm_test.cc ${CMAKE_CURRENT_LIST_DIR}/machine_vm_images_test.cc
      ${CMAKE_CURRENT_LIST_DIR}/machine_vm_support.cc
    LIBS smolvm::machine LABELS vm TIMEOUT 1500)
  add_dependencies(machine_vm_test smolvm smolvm-machine-agent smolvm-vsock-device)
  # Kernel and images are made once for a build folder, as on a user's machine.
  target_compile_definitions(machine_vm_test PRIVATE
    SMOLVM_PROGRAM="$<TARGET_FILE:smolvm>"
    SMOLVM_AGENT="$<TARGET_FILE:smolvm-machine-agent>"
    SMOLVM_VSOCK_DEVICE="$<TARGET_FILE:smolvm-vsock-device>"
    SMOLVM_TEST_CACHE="${CMAKE_BINARY_DIR}/vm-cache")
  smolvm_test(machine_accelerator_vm_test
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/machine_accelerator_vm_test.cc ${CMAKE_CURRENT_LIST_DIR}/machine_vm_support.cc
    LIBS smolvm::machine LABELS vm TIMEOUT 1500)
  add_dependencies(machine_accelerator_vm_test smolvm smolvm-machine-agent smolvm-vsock-device)
  target_compile_definitions(machine_accelerator_vm_test PRIVATE
    SMOLVM_PROGRAM="$<TARGET_FILE:smolvm>"
    SMOLVM_FAKE_QEMU="${CMAKE_SOURCE_DIR}/tests/support/fake_qemu.sh"
    SMOLVM_TEST_CACHE="${CMAKE_BINARY_DIR}/vm-cache")
endif()
if(NOT SMOLVM_SANITIZE AND TARGET machine_vm_test AND TARGET smolvm-cuda-daemon AND TARGET smolvm_guest_cuda AND TARGET cuda-probe)
  add_executable(cuda_vm_guest ${CMAKE_CURRENT_LIST_DIR}/cuda_vm_guest.cc)
  target_link_libraries(cuda_vm_guest PRIVATE ${CMAKE_DL_LIBS})
  set_target_properties(cuda_vm_guest PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  smolvm_test(machine_cuda_vm_test
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/machine_cuda_vm_test.cc ${CMAKE_CURRENT_LIST_DIR}/machine_vm_support.cc
    LIBS smolvm::machine LABELS vm TIMEOUT 1500)
  add_dependencies(machine_cuda_vm_test smolvm smolvm-machine-agent smolvm-vsock-device
    smolvm-cuda-daemon smolvm_guest_cuda cuda-probe cuda_vm_guest)
  foreach(target smolvm-cuda-worker smolvm_cuda_emulation)
    if(TARGET ${target})
      add_dependencies(machine_cuda_vm_test ${target})
    endif()
  endforeach()
  target_compile_definitions(machine_cuda_vm_test PRIVATE
    SMOLVM_PROGRAM="$<TARGET_FILE:smolvm>"
    SMOLVM_AGENT="$<TARGET_FILE:smolvm-machine-agent>"
    SMOLVM_VSOCK_DEVICE="$<TARGET_FILE:smolvm-vsock-device>"
    SMOLVM_CUDA_PROBE="$<TARGET_FILE:cuda-probe>"
    SMOLVM_CUDA_GUEST="$<TARGET_FILE:cuda_vm_guest>"
    SMOLVM_CUDA_DAEMON="$<TARGET_FILE:smolvm-cuda-daemon>"
    SMOLVM_PROBE_SCRIPT="${CMAKE_SOURCE_DIR}/scripts/cuda-probe.py"
    SMOLVM_TEST_CACHE="${CMAKE_BINARY_DIR}/vm-cache")
endif()
