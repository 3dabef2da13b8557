#pragma once

#include <torch/nn/pimpl.h>

#include <cstdint>

#include "weft/models/config/config.h"
#include "weft/models/decoder/token_mixer.h"
#include "weft/models/load/weight_source.h"
#include "weft/nn/parallel/parallel_linear.h"
#include "weft/nn/recurrent/short_convolution.h"

namespace weft::models {

/// A gated short convolution: [b | c | x] = in(h), then out(c * convolution(b * x)), cut by
/// channels: one all-reduce forward and one backward. Source: LFM2, arXiv:2511.23404, as
/// transformers' modeling_lfm2.py has it.
class ShortConvolutionLayerImpl : public TokenMixerImpl {
 public:
  ShortConvolutionLayerImpl(const ModelConfig& config, const WeightSource& source, int64_t layer,
                            const dist::Group& group);
  at::Tensor forward(const at::Tensor& x_BTD, const PassContext& pass) override;
  nn::StateSizes state_sizes() const override;

 private:
  int64_t layer_;
  nn::AllToShardedLinear in_proj_;
  nn::ShortConvolution convolution_;
  nn::ShardedToAllLinear out_proj_;
};
TORCH_MODULE(ShortConvolutionLayer);

}  // namespace weft::models
