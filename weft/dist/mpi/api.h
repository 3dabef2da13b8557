#pragma once

// MPI's interface for C, without the one for C++ that the standard has dropped (MPI-3.0).
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
