# weft_module(NAME nn DEPS core shard [TORCH] [TORCH_SOURCES a.cpp …] [TORCH_DEPS dist …])
#
# One folder = one namespace = one target weft_<NAME>, of all .cpp files beside the call.
# DEPS is the list of folders that it may include: the layer check reads it from here.
# TORCH: the folder uses libtorch. TORCH_SOURCES: only these files do (they and TORCH_DEPS are left
# out of a build without libtorch). LEAVE_OUT: patterns of files that this build leaves out.
function(weft_module)
  cmake_parse_arguments(ARG "TORCH" "NAME" "DEPS;TORCH_SOURCES;TORCH_DEPS;LEAVE_OUT" ${ARGN})
  if(ARG_TORCH AND NOT WEFT_TORCH)
    return()
  endif()
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} *.cpp)
  if(NOT WEFT_TORCH)
    list(REMOVE_ITEM sources ${ARG_TORCH_SOURCES})
  endif()
  foreach(pattern ${ARG_LEAVE_OUT})
    list(FILTER sources EXCLUDE REGEX "${pattern}")
  endforeach()
  if(NOT sources)
    return()
  endif()
  set(target weft_${ARG_NAME})
  add_library(${target} STATIC ${sources})
  target_link_libraries(${target} PUBLIC weft_compile)
  foreach(dep ${ARG_DEPS})
    target_link_libraries(${target} PUBLIC weft_${dep})
  endforeach()
  if(WEFT_TORCH AND (ARG_TORCH OR ARG_TORCH_SOURCES))
    foreach(dep ${ARG_TORCH_DEPS})
      target_link_libraries(${target} PUBLIC weft_${dep})
    endforeach()
    weft_use_torch(${target})
    # A file with libtorch's headers costs 5 s before its own first line, so ten are compiled as one.
    set_target_properties(${target} PROPERTIES UNITY_BUILD ${WEFT_UNITY} UNITY_BUILD_BATCH_SIZE 10)
    if(ARG_TORCH_SOURCES)
      set(plain ${sources})
      list(REMOVE_ITEM plain ${ARG_TORCH_SOURCES})
      set_source_files_properties(${plain} PROPERTIES SKIP_PRECOMPILE_HEADERS ON
                                                      SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endif()
endfunction()

# Links libtorch and reuses the precompiled header.
function(weft_use_torch target)
  target_link_libraries(${target} PUBLIC weft_torch)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL EXECUTABLE)
    # Programs are compiled with -fPIE otherwise, which does not fit the header's -fPIC.
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIC)
  endif()
  target_precompile_headers(${target} REUSE_FROM weft_pch)
endfunction()
