#pragma once

// What weft/cuda uses of NCCL, for the processor: see nccl_on_cpu.cpp.

#include <cstddef>

#include "tests/support/cuda_on_cpu/cuda_runtime.h"

struct ncclUniqueId {
  char internal[128];
};
using ncclComm_t = struct RanksOnCpu*;
enum ncclResult_t { ncclSuccess, ncclSystemError, ncclInvalidArgument };
enum ncclDataType_t { ncclFloat32 = 7 };
enum ncclRedOp_t { ncclSum };

extern "C" {
ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
ncclResult_t ncclCommInitRank(ncclComm_t* communicator, int size, ncclUniqueId id, int rank);
ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t communicator, cudaStream_t stream);
ncclResult_t ncclCommDestroy(ncclComm_t communicator);
const char* ncclGetErrorString(ncclResult_t result);
}
