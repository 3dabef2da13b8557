#include "weft/shard/heads.h"

#include <algorithm>

#include "weft/core/error.h"

namespace weft::shard {
namespace {

using core::check;
using core::ConfigError;

Range kv_heads_of(const Range& heads, int64_t heads_per_kv) {
  const int64_t first = heads.start / heads_per_kv;
  return {first, (heads.end() - 1) / heads_per_kv - first + 1};
}

// Heads of both kinds on the rank that has most, where each rank has the query heads `heads_of`.
template <class HeadsOf>
int64_t most_heads(int64_t n, int64_t heads_per_kv, const HeadsOf& heads_of) {
  int64_t most = 0;
  for (int64_t rank = 0; rank < n; ++rank) {
    const Range heads = heads_of(rank);
    most = std::max(most, heads.length + kv_heads_of(heads, heads_per_kv).length);
  }
  return most;
}

}  // namespace

HeadShard head_shard(const Range& heads, int64_t heads_per_kv) {
  HeadShard shard{heads, kv_heads_of(heads, heads_per_kv), {}};
  for (int64_t head = heads.start; head < heads.end(); ++head) {
    shard.kv_of_head.push_back(head / heads_per_kv - shard.kv_heads.start);
  }
  return shard;
}

HeadShard shard_heads(int64_t num_heads, int64_t num_kv_heads, int64_t n, int64_t rank,
                      HeadSplit split) {
  check<ConfigError>(num_kv_heads >= 1 && num_heads >= 1 && num_heads % num_kv_heads == 0,
                     "shard.shard_heads: ", num_heads, " heads over ", num_kv_heads,
                     " kv heads; expected a positive multiple");
  check<ConfigError>(n >= 1 && n <= num_heads, "shard.shard_heads: ", num_heads,
                     " heads cannot be cut over ", n, " ranks; use 1 to ", num_heads, " ranks");
  const int64_t heads_per_kv = num_heads / num_kv_heads;
  const auto by_query_heads = [&](int64_t of) { return part(num_heads, n, of); };
  const auto by_kv_heads = [&](int64_t of) {
    const Range kv_heads = part(num_kv_heads, n, of);
    return Range{kv_heads.start * heads_per_kv, kv_heads.length * heads_per_kv};
  };
  const bool deals_query_heads = n > num_kv_heads || (split == HeadSplit::kEven &&
                                                      most_heads(n, heads_per_kv, by_query_heads) <
                                                          most_heads(n, heads_per_kv, by_kv_heads));
  return head_shard(deals_query_heads ? by_query_heads(rank) : by_kv_heads(rank), heads_per_kv);
}

}  // namespace weft::shard
