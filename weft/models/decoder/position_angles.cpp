#include "weft/models/decoder/position_angles.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/floor.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/tensor.h>

#include "weft/core/error.h"
#include "weft/models/config/config_rope.h"

namespace weft::models {
namespace {

nn::RopeOptions rope_options(const ModelConfig& config, int64_t head_dim) {
  core::check<core::ConfigError>(config.rope_dims >= 0 && config.rope_dims <= head_dim,
                                 "models: rope turns ", config.rope_dims,
                                 " features of a head, expected at most its ", head_dim);
  nn::RopeOptions options;
  options.dim = config.rope_dims == 0 ? head_dim : config.rope_dims;
  options.base = config.rope_base;
  options.max_positions = config.max_positions;
  options.turns_neighbours = config.turns_neighbours;
  return options;
}

NearAngles angles_of_all(const ModelConfig& config, const WeightSource& source) {
  const FullLayersConfig& full = config.full_layers;
  nn::RopeOptions options = rope_options(config, full.is_used() ? full.head_dim : config.head_dim);
  options.scaling = config.rope_scaling;
  options.scaling.long_factors = options.scaling.short_factors;
  options.divisors = source.vector_or_undefined(kRopeDivisors);
  return NearAngles(nn::Rope(std::move(options)),
                    config.rope_scaling.type == nn::RopeType::kDynamic);
}

std::optional<NearAngles> angles_of_long(const ModelConfig& config) {
  if (config.rope_scaling.type != nn::RopeType::kLongRope) return std::nullopt;
  nn::RopeOptions options = rope_options(config, config.head_dim);
  options.scaling = config.rope_scaling;
  options.scaling.short_factors = options.scaling.long_factors;
  return NearAngles(nn::Rope(std::move(options)), false);
}

std::optional<NearAngles> angles_of_windowed(const ModelConfig& config) {
  if (config.window_rope_base == 0) return std::nullopt;
  nn::RopeOptions options = rope_options(config, config.head_dim);
  options.base = config.window_rope_base;
  return NearAngles(nn::Rope(std::move(options)), false);
}

}  // namespace

nn::RopeAngles NearAngles::near(int64_t start, int64_t tokens) {
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
          angles.sin().narrow(0, start - window, tokens), angles.turns_neighbours()};
}

nn::RopeAngles NearAngles::each(std::span<const int64_t> positions) {
  std::vector<at::Tensor> cos, sin;
  for (const int64_t position : positions) {
    const nn::RopeAngles own = near(position, 1);
    cos.push_back(own.cos());
    sin.push_back(own.sin());
  }
  // [B, 1, 1, dim].
  return {at::cat(cos).unsqueeze(1), at::cat(sin).unsqueeze(1), rope_.turns_neighbours()};
}

nn::RopeAngles NearAngles::of(const TokenBatch& batch) const {
  const at::Tensor& positions_BT = batch.positions_BT;
  if (!positions_BT.defined()) return rope_.angles(0, batch.ids_BT.size(1));
  if (!depend_on_length_) return rope_.angles(positions_BT);
  std::vector<at::Tensor> cos, sin;
  for (int64_t row = 0; row < positions_BT.size(0); ++row) {
    const nn::RopeAngles own = rope_.angles(positions_BT.narrow(0, row, 1));
    cos.push_back(own.cos());
    sin.push_back(own.sin());
  }
  return {at::cat(cos), at::cat(sin), rope_.turns_neighbours()};
}

PositionAngles::PositionAngles(const ModelConfig& config, const WeightSource& source)
    : all_(angles_of_all(config, source)),
      long_(angles_of_long(config)),
      windowed_(angles_of_windowed(config)),
      query_growth_(config.query_growth),
      original_positions_(static_cast<double>(config.rope_scaling.original_positions)) {}

// Source: Ministral 3, in the order of transformers' computation.
at::Tensor PositionAngles::query_factors(const at::Tensor& positions) const {
  const at::Tensor times = at::floor(positions.to(at::kFloat) / original_positions_);
  return (1 + query_growth_ * at::log1p(times)).unsqueeze(-1).unsqueeze(-1);
}

NearAngles& PositionAngles::for_context(int64_t context) {
  return long_ && static_cast<double>(context) > original_positions_ ? *long_ : all_;
}

LayerAngles PositionAngles::near(int64_t start, int64_t tokens, int64_t context) {
  LayerAngles angles{for_context(context).near(start, tokens)};
  if (windowed_) angles.windowed = windowed_->near(start, tokens);
  if (query_growth_ != 0) angles.query_factors = query_factors(at::arange(start, start + tokens));
  return angles;
}

std::vector<int64_t> positions_of(std::span<nn::KvCache* const> caches) {
  std::vector<int64_t> positions;
  for (size_t i = 0; i < caches.size(); ++i) {
    const bool comes_again = i > 0 && caches[i] == caches[i - 1];
    positions.push_back(comes_again ? positions.back() + 1 : caches[i]->length());
    caches[i]->check_room(positions.back() - caches[i]->length() + 1);
  }
  return positions;
}

LayerAngles PositionAngles::each(std::span<const int64_t> positions, int64_t context) {
  LayerAngles angles{for_context(context).each(positions)};
  if (windowed_) angles.windowed = windowed_->each(positions);
  if (query_growth_ == 0) return angles;
  const at::ArrayRef<int64_t> list(positions.data(), positions.size());
  angles.query_factors = query_factors(at::tensor(list, at::kLong).unsqueeze(1));
  return angles;
}

LayerAngles PositionAngles::of(const TokenBatch& batch) const {
  const bool is_long = long_ && static_cast<double>(batch.ids_BT.size(1)) > original_positions_;
  LayerAngles angles{(is_long ? *long_ : all_).of(batch)};
  if (windowed_) angles.windowed = windowed_->of(batch);
  if (query_growth_ == 0) return angles;
  angles.query_factors = query_factors(
      batch.positions_BT.defined() ? batch.positions_BT : at::arange(batch.ids_BT.size(1)));
  return angles;
}

LayerAngles LayerAngles::of_row(int64_t row) const {
  const auto own = [row](const nn::RopeAngles& angles) {
    return nn::RopeAngles(angles.cos().select(0, row), angles.sin().select(0, row),
                          angles.turns_neighbours());
  };
  LayerAngles alone{own(all)};
  if (windowed) alone.windowed = own(*windowed);
  if (query_factors.defined()) alone.query_factors = query_factors.select(0, row);
  return alone;
}

}  // namespace weft::models
