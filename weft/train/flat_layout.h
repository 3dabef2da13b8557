#pragma once

#include <cstdint>
#include <vector>

#include "weft/shard/split.h"

namespace weft::train {

/// Where the parameters of a unit lie in one flat run of elements, and which part of it each rank
/// holds. Between uses a rank of the data axis has 1/data of the run, its *share*; of that, a rank
/// of the replica axis owns 1/replica: the part whose optimizer state it keeps. All parts have one
/// length, so that collectives need no sizes. Pure arithmetic.
class FlatLayout {
 public:
  /// Parameters of these many elements, one after another, padded so that every owned part is a
  /// multiple of kAlignment elements. Throws ConfigError unless data and replica are at least 1,
  /// ShapeError for a negative number of elements.
  FlatLayout(const std::vector<int64_t>& numels, int64_t data, int64_t replica);

  /// A cache line of float32: no two ranks' parts share one.
  static constexpr int64_t kAlignment = 16;

  /// Elements of the run, padding included.
  int64_t length() const { return length_; }
  /// Elements without the padding.
  int64_t num_elements() const { return num_elements_; }
  int64_t share_length() const { return length_ / data_; }
  int64_t owned_length() const { return length_ / (data_ * replica_); }
  int64_t data() const { return data_; }
  int64_t replica() const { return replica_; }

  /// Where parameter `index` lies in the run.
  shard::Range parameter(size_t index) const { return parameters_[index]; }
  size_t num_parameters() const { return parameters_.size(); }
  /// What rank `data_rank` of the data axis holds.
  shard::Range share(int64_t data_rank) const;
  /// What the rank at both places owns; a part of its share.
  shard::Range owned(int64_t data_rank, int64_t replica_rank) const;

  /// The part of a parameter that lies in a range of the run.
  struct Piece {
    size_t parameter = 0;
    /// Elements of the flattened parameter.
    shard::Range elements;
    /// Where they begin, counted from the range's start.
    int64_t offset = 0;
  };
  /// All of them, ascending; padding belongs to none.
  std::vector<Piece> pieces(const shard::Range& range) const;

 private:
  std::vector<shard::Range> parameters_;
  int64_t data_;
  int64_t replica_;
  int64_t num_elements_ = 0;
  int64_t length_ = 0;
};

}  // namespace weft::train
