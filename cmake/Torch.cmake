# libtorch as two imported libraries. Its own TorchConfig.cmake insists on a CUDA toolkit when it
# was built with CUDA, which a program that links libtorch_cpu does not need.
# A user's own libtorch is found by CMAKE_PREFIX_PATH; without it the one in .deps.
find_path(WEFT_TORCH_ROOT NAMES include/ATen/ATen.h PATH_SUFFIXES torch
          HINTS ${CMAKE_PREFIX_PATH} PATHS ${CMAKE_SOURCE_DIR}/.deps NO_CACHE)
if(NOT WEFT_TORCH_ROOT)
  message(FATAL_ERROR "libtorch: not found; run ./start setup, or set CMAKE_PREFIX_PATH to a libtorch 2.11")
endif()
message(STATUS "libtorch: ${WEFT_TORCH_ROOT}")
foreach(name c10 torch_cpu)
  find_library(WEFT_LIB_${name} ${name} PATHS ${WEFT_TORCH_ROOT}/lib NO_DEFAULT_PATH REQUIRED)
  add_library(torch::${name} SHARED IMPORTED)
  set_target_properties(torch::${name} PROPERTIES IMPORTED_LOCATION ${WEFT_LIB_${name}})
  target_include_directories(torch::${name} SYSTEM INTERFACE
    ${WEFT_TORCH_ROOT}/include ${WEFT_TORCH_ROOT}/include/torch/csrc/api/include)
endforeach()

# USE_C10D_GLOO opens c10d's Gloo header; the code is in libtorch_cpu.
add_library(weft_torch INTERFACE)
target_link_libraries(weft_torch INTERFACE torch::torch_cpu torch::c10)
target_compile_definitions(weft_torch INTERFACE USE_C10D_GLOO USE_DISTRIBUTED)
# libtorch_cpu needs CUDA's run-time library; the linker must not look for what only that needs.
target_link_options(weft_torch INTERFACE -Wl,--allow-shlib-undefined)
# at::parallel_for is a template: it splits work only where it is compiled with OpenMP, whose
# run-time library is the one that libtorch has loaded already.
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  target_compile_options(weft_torch INTERFACE -fopenmp)
  target_link_libraries(weft_torch INTERFACE gomp)
endif()

# One precompiled header for all: takes a file from 15 s to 4 s.
file(WRITE ${CMAKE_BINARY_DIR}/pch_anchor.cpp "")
add_library(weft_pch OBJECT ${CMAKE_BINARY_DIR}/pch_anchor.cpp)
target_link_libraries(weft_pch PRIVATE weft_compile weft_torch)
target_precompile_headers(weft_pch PRIVATE ${CMAKE_SOURCE_DIR}/cmake/pch.h)
