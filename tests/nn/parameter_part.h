#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "weft/nn/parallel/parameter_info.h"

namespace weft::test {

/// What rank `rank` of the model axis holds of a whole parameter.
inline at::Tensor part_of(const at::Tensor& whole, const nn::ParameterInfo& info, int64_t rank) {
  if (!info.cut.has_value()) return whole;
  std::vector<at::Tensor> parts;
  for (const shard::Range& range : info.cut->of(rank)) {
    parts.push_back(whole.narrow(info.cut->dim, range.start, range.length));
  }
  return at::cat(parts, info.cut->dim);
}

}  // namespace weft::test
