#pragma once

#include <algorithm>
#include <cstring>

#include "weft/core/error.h"
#include "weft/dist/shm/collectives.h"

/// What the files of ShmCollectives share.
namespace weft::dist {

/// Pieces start on lines of the cache of their own; bytes.
inline constexpr size_t kLine = 64;

/// How many chunks so many bytes are.
inline uint64_t chunks_of(size_t bytes, size_t chunk) { return (bytes + chunk - 1) / chunk; }

/// Bytes of one of them; 0 after the last.
inline size_t chunk_length(size_t bytes, uint64_t index, size_t chunk) {
  const size_t start = index * chunk;
  return start >= bytes ? 0 : std::min(chunk, bytes - start);
}

/// As memcpy, but null pointers will do for no bytes, and bytes may stay where they are.
inline void copy_bytes(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes != 0 && to != from) std::memcpy(to, from, bytes);
}

/// What ranks compare of a call on `count` elements.
inline ShmOperation describe_call(OpKind kind, c10::ScalarType dtype, uint64_t count) {
  ShmOperation operation;
  operation.kind = static_cast<uint8_t>(kind);
  operation.dtype = static_cast<int8_t>(dtype);
  operation.count = count;
  return operation;
}

/// As the kernels know it.
inline ShmReduce to_shm_reduce(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return ShmReduce::kSum;
    case ReduceOp::kAverage:
      return ShmReduce::kAverage;
    case ReduceOp::kMin:
      return ShmReduce::kMin;
    case ReduceOp::kMax:
      return ShmReduce::kMax;
    case ReduceOp::kProduct:
      return ShmReduce::kProduct;
  }
  core::fail<core::InternalError>("dist.shm: unknown reduction");
}

/// Runs a call: a rank that cannot go on must not leave the others waiting.
template <class Function>
void ShmCollectives::guarded(const ShmOperation& operation, Function&& function) {
  try {
    steps_.begin(operation);
    function();
  } catch (const core::Error& error) {
    steps_.waiter().abort(error.what());
    throw;
  }
}

}  // namespace weft::dist
