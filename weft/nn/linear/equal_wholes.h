#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "weft/dist/group.h"
#include "weft/nn/linear/linear_like.h"
#include "weft/shard/layout.h"

namespace weft::nn {

/// A whole that is about to be cut, and how; what every rank must have alike.
struct WholeTensor {
  std::string name;
  at::Tensor tensor;
  /// In words that differ where cuts do.
  std::string cut = {};
};

/// Says which elements of a dim each rank gets.
std::string layout_text(const shard::Layout& layout);

/// The parameters and buffers of a layer.
std::vector<WholeTensor> wholes_of(const LinearLike& linear, const std::string& cut);

/// Throws CommError on all ranks, beginning with `where` and naming the first rank and tensor that
/// differ from rank 0's, unless all ranks have the same tensors, bit for bit, cut alike: parts of
/// different wholes would be taken for one in silence. Reads every byte once (a hash of all is
/// compared), those of the meta device not at all. Collective: one exchange of 8 bytes a rank.
void check_equal_wholes(const std::vector<WholeTensor>& wholes, const std::string& where,
                        const dist::Group& group);

}  // namespace weft::nn
