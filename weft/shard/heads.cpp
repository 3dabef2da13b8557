#include "weft/shard/heads.h"

#include "weft/core/error.h"

namespace weft::shard {

using core::check;
using core::ConfigError;

HeadShard shard_heads(int64_t num_heads, int64_t num_kv_heads, int64_t n, int64_t rank) {
  check<ConfigError>(num_kv_heads >= 1 && num_heads >= 1 && num_heads % num_kv_heads == 0,
                     "shard.shard_heads: ", num_heads, " heads over ", num_kv_heads,
                     " kv heads; expected a positive multiple");
  check<ConfigError>(n >= 1 && n <= num_heads, "shard.shard_heads: ", num_heads,
                     " heads cannot be cut over ", n, " ranks; use 1 to ", num_heads, " ranks");
  const int64_t heads_per_kv = num_heads / num_kv_heads;
  HeadShard shard;
  if (n <= num_kv_heads) {
    shard.kv_heads = part(num_kv_heads, n, rank);
    shard.heads = {shard.kv_heads.start * heads_per_kv, shard.kv_heads.length * heads_per_kv};
  } else {
    shard.heads = part(num_heads, n, rank);
    const int64_t first_kv = shard.heads.start / heads_per_kv;
    const int64_t last_kv = (shard.heads.end() - 1) / heads_per_kv;
    shard.kv_heads = {first_kv, last_kv - first_kv + 1};
  }
  for (int64_t head = shard.heads.start; head < shard.heads.end(); ++head) {
    shard.kv_of_head.push_back(head / heads_per_kv - shard.kv_heads.start);
  }
  return shard;
}

}  // namespace weft::shard
