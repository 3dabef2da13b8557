#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace weft::nn {

/// Tokens [start, start + length) of row `batch`, which see only each other.
struct SequenceRun {
  int64_t batch = 0;
  int64_t start = 0;
  int64_t length = 0;
};

/// The documents of `batch` rows of `tokens` tokens as runs, in order; documents_BT (int64)
/// undefined: each row is one. None if a document's number comes back after another's.
std::optional<std::vector<SequenceRun>> sequence_runs(const at::Tensor& documents_BT, int64_t batch,
                                                      int64_t tokens);

}  // namespace weft::nn
