#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "weft/dist/group.h"
#include "weft/nn/ordered/sequence_sums.h"
#include "weft/shard/heads.h"

/// What attention does with heads that ranks share, with gradients of the same bits on any number
/// of ranks. Shape letters: B batch, T tokens, H head dim; n, k: this rank's heads and kv heads.
namespace weft::nn::ordered {

/// How the ranks of a group share attention heads.
struct HeadCut {
  dist::Group group;
  /// This rank's query heads and the kv heads that they read.
  shard::HeadShard own;
  /// Of the whole.
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  /// Query heads of every rank, which has them one after another.
  std::vector<int64_t> heads_of_rank;

  int64_t heads_per_kv() const { return num_heads / num_kv_heads; }
  /// Whether this rank is the first that holds a kv head, of the whole.
  bool is_first_with(int64_t kv_head) const { return own.heads.start <= kv_head * heads_per_kv(); }
  /// Some kv head is on several ranks: the same on all ranks.
  bool shares_kv_heads() const;
};

/// A copy of each kv head for each query head that reads it, [B, T, n, H]. The gradient of a kv
/// head is the sum over its query heads of the whole, in their order, on every rank that holds it.
/// x_BTkH: float32. Collective in backward where kv heads are shared.
at::Tensor copied_to_heads(const at::Tensor& x_BTkH, const HeadCut& cut);

/// RMSNorm of each head with one weight [H] for all, which is on every rank, and its gradient: each
/// head's is summed over its tokens, heads in their order, and sequences by theirs. `of_kv`: x_BTnH
/// are kv heads, of which the first rank that holds one counts it. x_BTnH: float32. Collective in
/// backward.
at::Tensor normed_heads(const at::Tensor& x_BTnH, const at::Tensor& weight_with_offset_H,
                        double eps, const HeadCut& cut, bool of_kv, const SequenceOrder& order);

}  // namespace weft::nn::ordered
