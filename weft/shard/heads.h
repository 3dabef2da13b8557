#pragma once

#include <cstdint>
#include <vector>

#include "weft/shard/split.h"

namespace weft::shard {

/// How ranks share attention heads where there are at least as many kv heads as ranks.
enum class HeadSplit {
  /// Whole kv heads are dealt out and their query heads follow: none is held twice.
  kKv,
  /// Query heads are dealt out and the kv heads that they need are replicated, if that leaves the
  /// rank that has most with fewer heads of both kinds together: products with q, k, v and output
  /// weights cost that much. Otherwise as kKv.
  kEven,
};

/// Which attention heads a rank holds, and the kv heads that these read.
struct HeadShard {
  /// Query heads, of `num_heads`.
  Range heads;
  /// Key/value heads that those query heads read, of `num_kv_heads`. Ranks overlap here when there
  /// are more ranks than kv heads, or by HeadSplit::kEven: then kv heads are replicated and their
  /// gradients are summed.
  Range kv_heads;
  /// For each of this rank's query heads, the index within `kv_heads` that it reads.
  std::vector<int64_t> kv_of_head;
};

/// Cuts grouped-query attention for rank `rank` of `n`. Up to `num_kv_heads` ranks, whole kv heads
/// are dealt out and their query heads follow (9 heads, 3 kv heads, n = 2: 6+3 and 2+1), or as
/// `split` says (kEven: 5+4 and 2+2); beyond that query heads are dealt out and the kv heads that
/// they need are replicated.
/// Throws ConfigError if kv heads don't divide heads or if n is more than `num_heads`.
HeadShard shard_heads(int64_t num_heads, int64_t num_kv_heads, int64_t n, int64_t rank,
                      HeadSplit split = HeadSplit::kKv);

/// The same for a rank that holds query heads `heads`, each kv head of which is read by
/// `heads_per_kv` of the whole.
HeadShard head_shard(const Range& heads, int64_t heads_per_kv);

}  // namespace weft::shard
