# MPI for the mpi backend: WEFT_HAS_MPI says whether there is one. Another than the default is chosen
# as CMake's FindMPI says, e.g. by -DMPI_C_COMPILER=mpicc.mpich.
set(WEFT_MPI AUTO CACHE STRING "The mpi backend: AUTO (if MPI is found), ON or OFF")
set_property(CACHE WEFT_MPI PROPERTY STRINGS AUTO ON OFF)
set(WEFT_HAS_MPI FALSE)
if(WEFT_TORCH AND WEFT_MPI)
  # The interface for C is the standard's; the one for C++ has left it.
  enable_language(C)
  find_package(MPI 3.0 COMPONENTS C)
  set(WEFT_HAS_MPI ${MPI_C_FOUND})
  if(NOT WEFT_HAS_MPI AND NOT WEFT_MPI STREQUAL "AUTO")
    message(FATAL_ERROR "MPI: not found; install libopenmpi-dev, or configure with WEFT_MPI=OFF")
  endif()
endif()
message(STATUS "mpi backend: ${WEFT_HAS_MPI}")

set(WEFT_MPI_KIND none)
set(WEFT_MPIRUN "")
if(WEFT_HAS_MPI)
  set(WEFT_MPI_KIND mpich)
  if("${MPI_C_INCLUDE_DIRS}${MPI_C_LIBRARIES}" MATCHES "openmpi")
    set(WEFT_MPI_KIND openmpi)
  endif()
  # Debian's mpiexec follows the machine's choice of an MPI, which may change after the build.
  file(REAL_PATH "${MPIEXEC_EXECUTABLE}" WEFT_MPIRUN)
  # Where programs find the backend's library before they are installed.
  set(WEFT_MPI_FOLDER ${weft_BINARY_DIR}/lib/weft)
  list(APPEND CMAKE_BUILD_RPATH ${WEFT_MPI_FOLDER})
endif()

# weft_tell_of_mpi(a.cpp …): which MPI there is and its mpirun. Told to these files alone, so that no other is
# compiled anew when MPI is installed later.
function(weft_tell_of_mpi)
  set(definitions "WEFT_MPIRUN=\"${WEFT_MPIRUN}\"" "WEFT_MPI_KIND=\"${WEFT_MPI_KIND}\"")
  if(WEFT_HAS_MPI)
    list(APPEND definitions WEFT_HAS_MPI)
  endif()
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_DEFINITIONS "${definitions}" SKIP_PRECOMPILE_HEADERS ON
                                                 SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# weft_add_mpi(TARGET): libweft_mpi.so of the folder mpi, which TARGET's code loads when it is asked for, so that
# programs need no MPI. It holds nothing of TARGET, and the linker sees to it.
function(weft_add_mpi target)
  if(NOT WEFT_HAS_MPI)
    return()
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/mpi/*.cpp)
  add_library(weft_mpi MODULE ${sources})
  target_link_libraries(weft_mpi PRIVATE weft_core MPI::MPI_C)
  weft_use_torch(weft_mpi)
  target_link_options(weft_mpi PRIVATE LINKER:--no-undefined LINKER:--exclude-libs,ALL)
  set_target_properties(weft_mpi PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${WEFT_MPI_FOLDER}
                                            UNITY_BUILD ${WEFT_UNITY} UNITY_BUILD_BATCH_SIZE 20)
  add_dependencies(${target} weft_mpi)
  # Programs of other projects find it, too.
  target_link_options(${target} INTERFACE
                      $<INSTALL_INTERFACE:-Wl,-rpath,$<INSTALL_PREFIX>/${CMAKE_INSTALL_LIBDIR}/weft>)
  if(NOT weft_IS_TOP_LEVEL)
    target_link_options(${target} INTERFACE $<BUILD_INTERFACE:-Wl,-rpath,${WEFT_MPI_FOLDER}>)
  endif()
endfunction()
