# Kernels for NVIDIA GPUs: WEFT_HAS_CUDA says whether they are compiled. They need nvcc to be compiled and no library of
# CUDA's to be there when the program starts: the run-time library is linked into it and finds the driver when a GPU is asked for.
set(WEFT_CUDA AUTO CACHE STRING "Kernels for NVIDIA GPUs: AUTO (if nvcc is found), ON or OFF")
set_property(CACHE WEFT_CUDA PROPERTY STRINGS AUTO ON OFF)
# Machine code for these, and what newer GPUs' drivers compile for themselves.
set(WEFT_CUDA_ARCHITECTURES 80 90 CACHE STRING "Compute capabilities to compile kernels for, oldest first")
set(WEFT_HAS_CUDA FALSE)
if(WEFT_CUDA AND WEFT_TORCH AND NOT WEFT_SANITIZE)
  set(where HINTS /usr/local/cuda PATH_SUFFIXES bin include lib64 lib targets/x86_64-linux/lib)
  find_program(WEFT_NVCC nvcc ${where})
  find_path(WEFT_CUDART_INCLUDE cuda_runtime.h ${where})
  find_library(WEFT_CUDART libcudart_static.a ${where})
  if(WEFT_NVCC AND WEFT_CUDART_INCLUDE AND WEFT_CUDART)
    set(WEFT_HAS_CUDA TRUE)
  elseif(NOT WEFT_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "CUDA: nvcc, cuda_runtime.h or libcudart_static.a not found; configure with WEFT_CUDA=OFF")
  endif()
endif()
message(STATUS "cuda: ${WEFT_HAS_CUDA}")

# weft_add_kernels(TARGET a.cu …): compiles them into the target and links the run-time library.
function(weft_add_kernels target)
  set(codes)
  foreach(number ${WEFT_CUDA_ARCHITECTURES})
    list(APPEND codes -gencode arch=compute_${number},code=sm_${number})
  endforeach()
  list(GET WEFT_CUDA_ARCHITECTURES -1 newest)
  list(APPEND codes -gencode arch=compute_${newest},code=compute_${newest})
  foreach(source ${ARGN})
    set(object ${CMAKE_CURRENT_BINARY_DIR}/${source}.o)
    get_filename_component(folder ${object} DIRECTORY)
    file(MAKE_DIRECTORY ${folder})
    add_custom_command(
      OUTPUT ${object}
      COMMAND ${CCACHE} ${WEFT_NVCC} -std=c++20 -O3 -I${weft_SOURCE_DIR} -Werror all-warnings
              -Xcompiler -fPIC,-Wall,-Wextra ${codes} -MD -MF ${object}.d
              -c ${CMAKE_CURRENT_SOURCE_DIR}/${source} -o ${object}
      DEPENDS ${source} DEPFILE ${object}.d COMMENT "Compiling kernels ${source}" VERBATIM)
    target_sources(${target} PRIVATE ${object})
    set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
  endforeach()
  target_include_directories(${target} SYSTEM PRIVATE ${WEFT_CUDART_INCLUDE})
  target_compile_definitions(${target} PRIVATE WEFT_HAS_CUDA)
  target_link_libraries(${target} PUBLIC ${WEFT_CUDART} dl rt pthread)
endfunction()
