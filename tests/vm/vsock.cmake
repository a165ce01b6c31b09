if(TARGET smolvm-vsock-device)
  # The guest's half is static and never sanitized, whatever this build is; so it has a command of
  # its own.
  set(guest ${CMAKE_BINARY_DIR}/tests/vsock_vm_guest)
  add_custom_command(OUTPUT ${guest}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/tests
    COMMAND ${CMAKE_CXX_COMPILER} -std=c++20 -O2 -static -Wall -Wextra -I${CMAKE_SOURCE_DIR}
      ${CMAKE_CURRENT_LIST_DIR}/vsock_vm_guest.cc -o ${guest}
    DEPENDS ${CMAKE_CURRENT_LIST_DIR}/vsock_vm_guest.cc ${CMAKE_CURRENT_LIST_DIR}/vsock_vm_ports.h)
  add_custom_target(vsock_vm_guest DEPENDS ${guest})

  smolvm_test(vsock_vm_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/vsock_vm_test.cc
    LIBS smolvm::fmt LABELS vm TIMEOUT 600)
  add_dependencies(vsock_vm_test vsock_vm_guest smolvm-vsock-device)
  target_compile_definitions(vsock_vm_test PRIVATE SMOLVM_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
    SMOLVM_VSOCK_VM_GUEST="${guest}" SMOLVM_VSOCK_DEVICE="$<TARGET_FILE:smolvm-vsock-device>")
endif()
