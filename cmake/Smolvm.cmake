# Helpers that every folder's CMakeLists.txt uses.

find_program(SMOLVM_CCACHE ccache)
if(SMOLVM_CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${SMOLVM_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${SMOLVM_CCACHE})
endif()

add_compile_options(-Wall -Wextra -Wno-missing-field-initializers)
if(SMOLVM_WERROR)
  add_compile_options(-Werror)
endif()
if(SMOLVM_SANITIZE)
  add_compile_options(-fsanitize=${SMOLVM_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -g1)
  add_link_options(-fsanitize=${SMOLVM_SANITIZE})
  # The driver API is a C interface: a program, or a hostile guest, may pass any number as one of its enumerations.
  # GCC gives such a value a meaning (it does not assume -fstrict-enums), and the tests pass some on purpose.
  add_compile_options(-fno-sanitize=enum)
endif()

# smolvm_add_subdirectories(DIR...): adds those that exist, so that a folder may be absent from a slim tree.
function(smolvm_add_subdirectories)
  foreach(dir ${ARGN})
    if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${dir}/CMakeLists.txt)
      add_subdirectory(${dir})
    endif()
  endforeach()
endfunction()

# smolvm_reads_options(FILE…): sources of this folder that read a command line, with CLI11: they run once and take longest to
# compile, three times as long with checks.
function(smolvm_reads_options)
  set(level -O1)
  if(SMOLVM_SANITIZE)
    set(level -O0)
  endif()
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS ${level})
endfunction()

# smolvm_cache_precompiled(TARGET): lets ccache keep what TARGET compiles with precompiled headers, as ccache's manual says
# ("Precompiled headers").
function(smolvm_cache_precompiled tgt)
  if(SMOLVM_CCACHE)
    set_target_properties(${tgt} PROPERTIES
      CXX_COMPILER_LAUNCHER "env;CCACHE_SLOPPINESS=pch_defines,time_macros;${SMOLVM_CCACHE}")
    target_compile_options(${tgt} PRIVATE -fpch-preprocess)
  endif()
endfunction()

# Everything that the tests labelled unit need, and no more: what CI's sanitizer builds build.
add_custom_target(unit_tests)

# smolvm_test(NAME SOURCES a.cc b.cc LIBS x y [LABELS l] [TIMEOUT s]): one GoogleTest binary, one CTest entry.
# Labels in use: unit (default), vm, container, slow.
function(smolvm_test name)
  cmake_parse_arguments(T "" "TIMEOUT" "SOURCES;LIBS;LABELS" ${ARGN})
  add_executable(${name} ${T_SOURCES})
  target_link_libraries(${name} PRIVATE ${T_LIBS} GTest::gtest GTest::gmock GTest::gtest_main Threads::Threads)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if(TARGET smolvm_test_headers)
    target_precompile_headers(${name} REUSE_FROM smolvm_test_headers)
    smolvm_cache_precompiled(${name})
  endif()
  add_test(NAME ${name} COMMAND ${name})
  if(NOT T_LABELS)
    set(T_LABELS unit)
  endif()
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 120)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${T_LABELS}" TIMEOUT ${T_TIMEOUT})
  if("unit" IN_LIST T_LABELS)
    add_dependencies(unit_tests ${name})
  endif()
endfunction()

# smolvm_test_again(test suffix ENVIRONMENT NAME=VALUE… [ARGS …]): a second run of a smolvm_test, under other settings.
function(smolvm_test_again test suffix)
  cmake_parse_arguments(T "" "" "ENVIRONMENT;ARGS" ${ARGN})
  get_test_property(${test} LABELS labels)
  get_test_property(${test} TIMEOUT timeout)
  add_test(NAME ${test}_${suffix} COMMAND ${test} ${T_ARGS})
  set_tests_properties(${test}_${suffix} PROPERTIES LABELS "${labels}" TIMEOUT ${timeout}
    ENVIRONMENT "${T_ENVIRONMENT}")
endfunction()
