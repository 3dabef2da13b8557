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

# Links MPI, if there is one, and tells the launcher which mpirun belongs to it.
function(weft_use_mpi target)
  set(kind none)
  set(mpirun "")
  if(WEFT_HAS_MPI)
    target_link_libraries(${target} PRIVATE MPI::MPI_C)
    target_compile_definitions(${target} PRIVATE WEFT_HAS_MPI)
    set(kind mpich)
    if("${MPI_C_INCLUDE_DIRS}${MPI_C_LIBRARIES}" MATCHES "openmpi")
      set(kind openmpi)
    endif()
    # Debian's mpiexec follows the machine's choice of an MPI, which may change after the build.
    file(REAL_PATH "${MPIEXEC_EXECUTABLE}" mpirun)
  endif()
  target_compile_definitions(${target} PRIVATE WEFT_MPIRUN="${mpirun}" WEFT_MPI_KIND="${kind}")
endfunction()
