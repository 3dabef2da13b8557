#include "weft/models/decoder/position_angles.h"

#include <ATen/ops/cat.h>

#include <utility>
#include <vector>

#include "weft/core/error.h"
#include "weft/models/decoder/decoder_names.h"

namespace weft::models {
namespace {

nn::Rope make_rope(const ModelConfig& config, const WeightSource& source) {
  core::check<core::ConfigError>(config.rope_dims >= 0 && config.rope_dims <= config.head_dim,
                                 "models: rope turns ", config.rope_dims,
                                 " features of a head, expected at most its ", config.head_dim);
  nn::RopeOptions options;
  options.dim = config.rope_dims == 0 ? config.head_dim : config.rope_dims;
  options.base = config.rope_base;
  options.max_positions = config.max_positions;
  options.scaling = config.rope_scaling;
  options.divisors = source.vector_or_undefined(kRopeDivisors);
  return nn::Rope(std::move(options));
}

}  // namespace

PositionAngles::PositionAngles(const ModelConfig& config, const WeightSource& source)
    : rope_(make_rope(config, source)),
      depend_on_length_(config.rope_scaling.type == nn::RopeType::kDynamic) {}

nn::RopeAngles PositionAngles::near(int64_t start, int64_t tokens) {
  constexpr int64_t kWindow = 256;
  constexpr size_t kMostWindows = 64;
  const int64_t window = start / kWindow * kWindow, end = window + kWindow;
  if (depend_on_length_ || at::GradMode::is_enabled() || start + tokens > end ||
      end > rope_.max_positions()) {
    return rope_.angles(start, tokens);
  }
  auto found = near_.find(window);
  if (found == near_.end()) {
    if (near_.size() >= kMostWindows) near_.clear();
    found = near_.emplace(window, rope_.angles(window, kWindow)).first;
  }
  const nn::RopeAngles& angles = found->second;
  return {angles.cos().narrow(0, start - window, tokens),
          angles.sin().narrow(0, start - window, tokens)};
}

nn::RopeAngles PositionAngles::each(std::span<const int64_t> positions) {
  std::vector<at::Tensor> cos, sin;
  for (const int64_t position : positions) {
    const nn::RopeAngles own = near(position, 1);
    cos.push_back(own.cos());
    sin.push_back(own.sin());
  }
  // [B, 1, 1, dim].
  return {at::cat(cos).unsqueeze(1), at::cat(sin).unsqueeze(1)};
}

nn::RopeAngles PositionAngles::of(const TokenBatch& batch) const {
  return batch.positions_BT.defined() ? rope_.angles(batch.positions_BT)
                                      : rope_.angles(0, batch.ids_BT.size(1));
}

}  // namespace weft::models
