#pragma once

#include <cstdint>

#include "weft/dist/parallelism.h"

namespace weft::dist {

/// fairscale's and Megatron's names of what parallelism.h has. All but the first throw ConfigError
/// before it. Sources: fairscale's nn/model_parallel/initialize.py, Megatron's
/// core/parallel_state.py.

/// init_parallelism. Collective over the world.
inline Parallelism initialize_model_parallel(int64_t model_parallel_size = 1,
                                             int64_t pipeline_parallel_size = 1) {
  return init_parallelism(model_parallel_size, pipeline_parallel_size);
}
/// reset_parallelism.
inline void destroy_model_parallel() { reset_parallelism(); }

/// parallel_group_info().mp.
inline const Group& get_model_parallel_group() { return parallel_group_info().mp; }
/// Of parallel_group_info().mp.
inline int64_t get_model_parallel_rank() { return get_model_parallel_group().rank(); }
/// Of parallel_group_info().mp.
inline int64_t get_model_parallel_world_size() { return get_model_parallel_group().size(); }

/// parallel_group_info().mp.
inline const Group& get_tensor_model_parallel_group() { return parallel_group_info().mp; }
/// Of parallel_group_info().mp.
inline int64_t get_tensor_model_parallel_rank() { return get_model_parallel_group().rank(); }
/// Of parallel_group_info().mp.
inline int64_t get_tensor_model_parallel_world_size() { return get_model_parallel_group().size(); }

/// parallel_group_info().pp.
inline const Group& get_pipeline_model_parallel_group() { return parallel_group_info().pp; }
/// Of parallel_group_info().pp.
inline int64_t get_pipeline_model_parallel_rank() {
  return get_pipeline_model_parallel_group().rank();
}
/// Of parallel_group_info().pp.
inline int64_t get_pipeline_model_parallel_world_size() {
  return get_pipeline_model_parallel_group().size();
}

/// parallel_group_info().dp.
inline const Group& get_data_parallel_group() { return parallel_group_info().dp; }
/// Of parallel_group_info().dp.
inline int64_t get_data_parallel_rank() { return get_data_parallel_group().rank(); }
/// Of parallel_group_info().dp.
inline int64_t get_data_parallel_world_size() { return get_data_parallel_group().size(); }

}  // namespace weft::dist
