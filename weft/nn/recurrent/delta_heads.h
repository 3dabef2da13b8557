#pragma once

#include <cstdint>

namespace weft::nn {

/// The heads of a gated delta net, whole or one rank's: value heads are neighbours by the key head
/// that they belong to, so ranks share key heads out and each takes its own value heads.
struct DeltaHeads {
  int64_t num_key_heads = 0;
  int64_t num_value_heads = 0;
  int64_t key_dim = 0;
  int64_t value_dim = 0;

  /// Features of all queries, which are as many as those of all keys, and of all values.
  int64_t key_features() const { return num_key_heads * key_dim; }
  int64_t value_features() const { return num_value_heads * value_dim; }
  /// What the convolution runs over: queries, keys, values.
  int64_t num_channels() const { return 2 * key_features() + value_features(); }
  /// The same of the heads on a rank that has so many value heads.
  DeltaHeads with_value_heads(int64_t count) const {
    return {count * num_key_heads / num_value_heads, count, key_dim, value_dim};
  }
  bool operator==(const DeltaHeads&) const = default;
};

}  // namespace weft::nn
