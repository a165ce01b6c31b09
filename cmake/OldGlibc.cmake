# old_glibc(TARGET CEILING): links the shared library TARGET against stub libraries made from cmake/glibc-CEILING.abi,
# so that it needs no symbol version newer than that glibc; libstdc++ and libgcc are linked in and hidden.
# fmt stands beside libstdc++, whose locales it asks for.
# Left out of sanitizer builds, whose runtimes need the real libraries.
function(old_glibc tgt ceil)
  if(SMOLVM_SANITIZE)
    return()
  endif()
  set(abi ${CMAKE_SOURCE_DIR}/cmake/glibc-${ceil}.abi)
  set(dir ${CMAKE_BINARY_DIR}/glibc-${ceil})
  if(NOT TARGET glibc-stubs-${ceil})
    add_custom_command(OUTPUT ${dir}/stamp
      COMMAND ${CMAKE_COMMAND} -E env CC=${CMAKE_C_COMPILER} sh ${CMAKE_SOURCE_DIR}/cmake/gen_stubs.sh ${abi} ${dir}
      COMMAND ${CMAKE_COMMAND} -E touch ${dir}/stamp
      DEPENDS ${CMAKE_SOURCE_DIR}/cmake/gen_stubs.sh ${abi} VERBATIM)
    add_custom_target(glibc-stubs-${ceil} DEPENDS ${dir}/stamp)
  endif()
  add_dependencies(${tgt} glibc-stubs-${ceil})
  set_property(TARGET ${tgt} APPEND PROPERTY LINK_DEPENDS ${dir}/stamp)
  target_sources(${tgt} PRIVATE ${CMAKE_SOURCE_DIR}/cmake/old_glibc_compat.cc)
  target_compile_options(${tgt} PRIVATE -ffunction-sections -fdata-sections)
  target_link_options(${tgt} PRIVATE -nodefaultlibs LINKER:--exclude-libs,ALL,-z,defs,-z,now,-z,nodelete,-Bsymbolic,--gc-sections)
  target_link_libraries(${tgt} PRIVATE -Wl,--start-group $<TARGET_FILE:smolvm_fmt> -l:libstdc++.a -lgcc_eh -lgcc -Wl,--end-group -L${dir}
    -l:libpthread.so.0 -l:libdl.so.2 -l:libm.so.6 -l:libc.so.6 -l:ld-linux-x86-64.so.2 -l:libc_nonshared.a)
  add_custom_command(TARGET ${tgt} POST_BUILD COMMAND sh ${CMAKE_SOURCE_DIR}/cmake/check_shim.sh $<TARGET_FILE:${tgt}> ${abi} VERBATIM)
endfunction()
