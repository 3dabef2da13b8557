# How our own targets use libtorch.

# USE_C10D_GLOO opens c10d's Gloo header; the code is in libtorch_cpu.
add_library(weft_torch INTERFACE)
target_link_libraries(weft_torch INTERFACE torch::torch_cpu torch::c10)
target_compile_definitions(weft_torch INTERFACE USE_C10D_GLOO USE_DISTRIBUTED)
# libtorch_cpu needs CUDA's run-time library; the linker must not look for what only that needs.
target_link_options(weft_torch INTERFACE -Wl,--allow-shlib-undefined)
# at::parallel_for is a template: it splits work only where it is compiled with OpenMP, whose
# run-time library is the one that libtorch has loaded already.
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  set(WEFT_OPENMP -fopenmp)
  target_link_libraries(weft_torch INTERFACE gomp)
endif()

# One precompiled header for all: takes a file from 15 s to 4 s.
file(WRITE ${weft_BINARY_DIR}/pch_anchor.cpp "")
add_library(weft_pch OBJECT ${weft_BINARY_DIR}/pch_anchor.cpp)
target_link_libraries(weft_pch PRIVATE weft_compile weft_own weft_torch)
target_compile_options(weft_pch PRIVATE ${WEFT_OPENMP})
target_precompile_headers(weft_pch PRIVATE ${weft_SOURCE_DIR}/cmake/pch.h)

# Links libtorch and reuses the precompiled header.
function(weft_use_torch target)
  target_link_libraries(${target} PUBLIC weft_torch)
  weft_own_target(${target})
  target_compile_options(${target} PRIVATE ${WEFT_OPENMP})
  get_target_property(type ${target} TYPE)
  if(type STREQUAL EXECUTABLE)
    # Programs are compiled with -fPIE otherwise, which does not fit the header's -fPIC.
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIC)
  endif()
  target_precompile_headers(${target} REUSE_FROM weft_pch)
endfunction()
