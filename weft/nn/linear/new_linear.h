#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "weft/nn/linear/dense_linear.h"
#include "weft/nn/parallel/init.h"

namespace weft::nn {

/// A dense linear layer that is made cut. What ColumnParallelLinear and RowParallelLinear share.
struct NewLinearSpec {
  int64_t in_features = 0;
  int64_t out_features = 0;
  bool bias = true;
  Init init = Init::linear_default();
  /// None: torch's, uniform within 1/sqrt(in_features).
  std::optional<Init> bias_init = std::nullopt;
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;
};

/// One rank's part of it. A kShardedToAll layer's bias is whole and stands beside the inner linear.
struct NewLinear {
  std::shared_ptr<DenseLinearImpl> inner;
  at::Tensor row_bias;
};

/// `features` as `stride` equal segments, each cut on its own over the group; `name` begins the
/// message. Throws ShapeError if stride does not divide them, ConfigError if a rank would hold
/// nothing of a segment.
LinearCut strided_cut(ShardKind kind, int64_t features, int64_t stride, const dist::Group& group,
                      const char* name);

/// The parts of the whole that one agreed seed determines, trainable. Collective, except on the
/// meta device.
NewLinear new_linear(const NewLinearSpec& spec, const LinearCut& cut);

/// Overwrites the parameters of `inner` and `row_bias` with those of a new whole of `spec`'s init
/// and their own dtype and device. Throws ConfigError, beginning with `name`, unless inner is
/// dense. Collective.
void reset_linear(LinearLike& inner, at::Tensor& row_bias, NewLinearSpec spec, const LinearCut& cut,
                  const char* name);

}  // namespace weft::nn
