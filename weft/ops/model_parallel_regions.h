#pragma once

#include "weft/ops/collectives.h"

namespace weft::ops {

/// fairscale's and Megatron's names of the operations in collectives.h, over the model group.
/// Regions are along the last dim, sequences along the first, as there. Sources: fairscale's
/// nn/model_parallel/mappings.py, Megatron's core/tensor_parallel/mappings.py.

/// mp_copy.
inline at::Tensor copy_to_model_parallel_region(const at::Tensor& x) { return mp_copy(x); }
/// mp_reduce.
inline at::Tensor reduce_from_model_parallel_region(const at::Tensor& x) { return mp_reduce(x); }
/// mp_scatter.
inline at::Tensor scatter_to_model_parallel_region(const at::Tensor& x) { return mp_scatter(x); }
/// mp_gather.
inline at::Tensor gather_from_model_parallel_region(const at::Tensor& x) { return mp_gather(x); }

/// mp_copy.
inline at::Tensor copy_to_tensor_model_parallel_region(const at::Tensor& x) { return mp_copy(x); }
/// mp_reduce.
inline at::Tensor reduce_from_tensor_model_parallel_region(const at::Tensor& x) {
  return mp_reduce(x);
}
/// mp_scatter.
inline at::Tensor scatter_to_tensor_model_parallel_region(const at::Tensor& x) {
  return mp_scatter(x);
}
/// mp_gather.
inline at::Tensor gather_from_tensor_model_parallel_region(const at::Tensor& x) {
  return mp_gather(x);
}

/// mp_scatter along dim 0.
inline at::Tensor scatter_to_sequence_parallel_region(const at::Tensor& x) {
  return mp_scatter(x, 0);
}
/// gather_sequence along dim 0.
inline at::Tensor gather_from_sequence_parallel_region(const at::Tensor& x) {
  return gather_sequence(x, 0);
}
/// reduce_scatter_sequence along dim 0.
inline at::Tensor reduce_scatter_to_sequence_parallel_region(const at::Tensor& x) {
  return reduce_scatter_sequence(x, 0);
}

}  // namespace weft::ops
