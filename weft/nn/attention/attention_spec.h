#pragma once

#include <ATen/core/Tensor.h>

#include <cmath>
#include <cstdint>
#include <vector>

namespace weft::nn {

/// What a layer's attention computes on one rank, whichever kernel does: causal grouped-query
/// attention, softmax(scale * q k^T) v, once rope has turned queries and keys. Sources: Ainslie et
/// al. 2023, arXiv:2305.13245; windows: Beltagy et al. 2020, arXiv:2004.05150.
struct AttentionSpec {
  /// Which of this rank's kv heads each of its query heads reads, ascending.
  std::vector<int64_t> kv_of_head;
  /// How many positions a query sees, its own included, of those up to it; 0: all.
  int64_t window = 0;
  /// What scores are multiplied by before the softmax; 0: 1 / sqrt(head dim).
  double scale = 0;
  /// Scaled scores become cap * tanh(score / cap); 0: they stay. Source: Gemma 2,
  /// arXiv:2408.00118.
  double cap = 0;
  /// A number for each query head, [n] floating, that stands beside its scores in the softmax and
  /// takes its share without a value; undefined: none. Source: gpt-oss, arXiv:2508.10925.
  at::Tensor sinks = {};

  /// The factor of scores for heads of so many features.
  float scale_for(int64_t head_dim) const {
    return scale != 0 ? static_cast<float>(scale) : 1 / std::sqrt(static_cast<float>(head_dim));
  }
};

}  // namespace weft::nn
