#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "weft/io/load_tensor.h"
#include "weft/models/load/plan.h"

namespace weft::models {

/// Reads the weights of a plan for one rank in the model's order, some rows at a time: a program
/// that writes a model anew never holds a whole matrix.
class RowReader {
 public:
  /// Keeps references to both.
  RowReader(const io::TensorFile& file, const LoadPlan& plan) : file_(file), plan_(plan) {}

  /// Rows of a matrix; 1 for a vector.
  static int64_t num_rows(const PlannedWeight& weight);
  /// Whether single rows can be read: some formats pack them together.
  static bool has_single_rows(const PlannedWeight& weight);
  /// `rows` in runs that take some megabytes as float32, each of whole `unit`s as long as `rows`
  /// begins with one. Where rows can't be read alone all of them are one run, and `rows` must be
  /// all.
  static std::vector<shard::Range> runs(const PlannedWeight& weight, const shard::Range& rows,
                                        int64_t unit = 1);

  /// As they are stored: floating ones in `dtype`. Throws FormatError, IoError.
  io::LoadedMatrix rows(const PlannedWeight& weight, const shard::Range& rows,
                        at::ScalarType dtype) const;
  /// As plain numbers.
  at::Tensor plain_rows(const PlannedWeight& weight, const shard::Range& rows,
                        at::ScalarType dtype) const;
  /// About `count` rows of a matrix, every so many-th of all of them, as float32.
  at::Tensor sampled_rows(const PlannedWeight& weight, int64_t count) const;
  /// The whole of a vector as the model has it; in float32 instead where the file has other
  /// numbers (WeightRule::stored_offset).
  at::Tensor vector(const PlannedWeight& weight, at::ScalarType dtype) const;

 private:
  const io::TensorFile& file_;
  const LoadPlan& plan_;
};

}  // namespace weft::models
