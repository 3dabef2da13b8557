# libtorch as two imported libraries, torch::torch_cpu and torch::c10. Its own TorchConfig.cmake insists
# on a CUDA toolkit when it was built with CUDA, which a program that links libtorch_cpu does not need.
# This file is installed beside weft's targets, too, so it looks for libtorch in a project of one's own
# as well: where find_package(Torch) or CMAKE_PREFIX_PATH found it, else where weft was built with it.
find_path(WEFT_TORCH_ROOT NAMES include/ATen/ATen.h PATH_SUFFIXES torch
          HINTS ${TORCH_INSTALL_PREFIX} ${CMAKE_PREFIX_PATH} PATHS ${WEFT_TORCH_FALLBACK} NO_CACHE)
if(NOT WEFT_TORCH_ROOT)
  message(FATAL_ERROR "libtorch: not found; run ./start setup, or set CMAKE_PREFIX_PATH to a libtorch 2.11")
endif()
message(STATUS "libtorch: ${WEFT_TORCH_ROOT}")
foreach(name c10 torch_cpu)
  if(NOT TARGET torch::${name})
    find_library(WEFT_LIB_${name} ${name} PATHS ${WEFT_TORCH_ROOT}/lib NO_DEFAULT_PATH REQUIRED NO_CACHE)
    add_library(torch::${name} SHARED IMPORTED GLOBAL)
    set_target_properties(torch::${name} PROPERTIES IMPORTED_LOCATION ${WEFT_LIB_${name}})
    target_include_directories(torch::${name} SYSTEM INTERFACE
      ${WEFT_TORCH_ROOT}/include ${WEFT_TORCH_ROOT}/include/torch/csrc/api/include)
  endif()
endforeach()
