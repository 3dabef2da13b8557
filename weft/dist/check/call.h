#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "weft/dist/group.h"
#include "weft/dist/launch/status_page.h"

// What the ranks of a group say to each other of the collectives that they are about to run.
namespace weft::dist {

/// A description of one rank's collective.
struct Call {
  OpKind kind = OpKind::kNone;
  /// The rest for people: "float32 [4, 8] sum".
  std::string text;
  /// What must be the same on all ranks, apart from the kind.
  std::string agreed;
  /// All-to-all only: how many elements this rank gives to each, and expects of each.
  std::vector<int64_t> gives = {};
  std::vector<int64_t> takes = {};
};

/// A call of which everything that is shown must be the same on all ranks.
Call call_of(OpKind kind, std::string text);

/// An all-gather along `dim`: shards may differ in size along it. `sizes` are all ranks', or empty.
Call gather_call(const at::Tensor& shard, int64_t dim, const std::vector<int64_t>& sizes);

/// "float32", as checkpoints and Python name it.
std::string dtype_text(at::ScalarType dtype);
/// "float32 [4, 8]".
std::string tensor_text(const at::Tensor& x);
/// The same for several, with a comma between.
std::string tensors_text(const std::vector<at::Tensor>& tensors);
/// "[4], [6]": the shapes only.
std::string shapes_text(const std::vector<at::Tensor>& tensors);
/// "sum", "average", "min" ….
std::string reduce_text(ReduceOp op);
std::string reduce_text(const c10d::ReduceOp& op);

}  // namespace weft::dist
