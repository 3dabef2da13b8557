#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "weft/dist/group.h"
#include "weft/models/config/config.h"
#include "weft/models/decoder/position_angles.h"
#include "weft/models/load/weight_source.h"
#include "weft/nn/attention/kv_cache.h"
#include "weft/nn/layers/dropout.h"
#include "weft/nn/linear/fused_linear.h"

namespace weft::models {

/// Keys before rope and values, [B, T, k, H], of layers whose keys and values others read.
using KeptKeys = std::map<int64_t, std::pair<at::Tensor, at::Tensor>>;

/// What all layers of a pass share.
struct PassContext {
  /// Of the tokens' positions.
  LayerAngles angles;
  /// int64; undefined where rows are not packed.
  at::Tensor documents_BT;
  /// Null: the tokens are the whole text, or each sequence has its own cache.
  nn::KvCache* cache = nullptr;
  /// Of each sequence, one token of which is read; for passes that take_each.
  std::span<nn::KvCache* const> caches = {};
  /// The position of each of these tokens. Where a cache comes several times in a row, its tokens
  /// follow one another.
  std::span<const int64_t> starts = {};
  /// Of the residual stream; layer numbers are the users'.
  nn::DropoutDraw dropout = {};
  /// Where the tokens stand, and those of this rank's residual stream.
  nn::ActivationPlace place = {};
  nn::ActivationPlace stream_place = {};
  /// B.
  int64_t num_sequences = 1;
  /// Of the residual stream [r, D], with sequence parallelism; empty: it is whole, [B, T, D].
  nn::RowCounts rows = {};
  /// Layers' own inputs [B, T, layers, P]; undefined in models without.
  at::Tensor layer_inputs_BTLP = {};
  /// Of a pass without a cache in which layers read others' keys; else null.
  std::shared_ptr<KeptKeys> kept_keys = nullptr;
};

/// The half of a decoder block in which tokens see those before them: attention, or what a family
/// has in its place.
class TokenMixerImpl : public torch::nn::Module {
 public:
  /// x_BTD, whole, or this rank's rows of it (pass.rows). Adds to the cache if there is one.
  /// Returns the same shape. Collective.
  virtual at::Tensor forward(const at::Tensor& x_BTD, const PassContext& pass) = 0;
  /// The state that it keeps in a cache; empty: keys and values.
  virtual nn::StateSizes state_sizes() const { return {}; }
};

/// A token mixer and what it is called in its block.
struct NamedTokenMixer {
  std::string name;
  std::shared_ptr<TokenMixerImpl> mixer;
};

/// The one that the configuration gives a layer.
NamedTokenMixer make_token_mixer(const ModelConfig& config, const WeightSource& source,
                                 int64_t layer, const dist::Group& group);

}  // namespace weft::models
