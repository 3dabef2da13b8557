#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>

#include "weft/dist/group.h"
#include "weft/dist/mpi/api.h"

namespace weft::dist {

/// How MPI reduces elements of one of libtorch's types. Half types travel as float, so that they
/// are rounded once; an average is a sum that is divided at the end.
struct MpiReduction {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Op op = MPI_OP_NULL;
  /// What travels, and the bytes of one element of it.
  c10::ScalarType wire = c10::ScalarType::Float;
  size_t wire_bytes = 4;
  /// What the caller has, and the bytes of one.
  c10::ScalarType dtype = c10::ScalarType::Float;
  size_t item = 4;
  bool is_average = false;

  bool widens() const { return wire != dtype; }
};

/// Throws ShapeError if the type cannot be reduced so: the same combinations as shm.
void check_mpi_reduction(c10::ScalarType dtype, ReduceOp op);
/// The same, and how. MPI must have begun.
MpiReduction mpi_reduction(c10::ScalarType dtype, ReduceOp op);

/// Copies `count` elements into what travels; `from` and `to` may not overlap.
void pack_elements(const MpiReduction& how, const std::byte* from, std::byte* to, int64_t count);
/// Copies reduced elements back, rounded once. `to` may be `from` if nothing is widened.
void unpack_elements(const MpiReduction& how, std::byte* from, std::byte* to, int64_t count,
                     int ranks);

}  // namespace weft::dist
