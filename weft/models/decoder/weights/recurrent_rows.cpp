#include "weft/models/decoder/weights/recurrent_rows.h"

#include "weft/models/decoder/weights/weight_shapes.h"

namespace weft::models {
namespace {

bool is_recurrent(const ModelConfig& config, int64_t layer) { return config.is_recurrent(layer); }

constexpr WeightPresence kLfm2 = {is_lfm2};
constexpr WeightPresence kLfm2Attention = {is_lfm2, has_usual_heads};
constexpr WeightPresence kGatedConvolution = {is_lfm2, is_recurrent};
constexpr WeightPresence kDeltaNet = {has_delta_nets, is_recurrent};

constexpr WeightRow kRecurrentRows[] = {
    {Part::kInputNorm, "model.layers.*.operator_norm", "blk.*.attn_norm", kOfWidth, kLfm2},
    {Part::kQueryNorm, "model.layers.*.self_attn.q_layernorm", "blk.*.attn_q_norm", kOfHead,
     kLfm2Attention},
    {Part::kKeyNorm, "model.layers.*.self_attn.k_layernorm", "blk.*.attn_k_norm", kOfHead,
     kLfm2Attention},
    {Part::kOutput, "model.layers.*.self_attn.out_proj", "blk.*.attn_output", kFromHeads,
     kLfm2Attention},
    {Part::kConvolutionIn, "model.layers.*.conv.in_proj", "blk.*.shortconv.in_proj",
     kToGatedChannels, kGatedConvolution},
    {Part::kConvolution, "model.layers.*.conv.conv", "blk.*.shortconv.conv", kTapsOfChannels,
     kGatedConvolution},
    {Part::kConvolutionOut, "model.layers.*.conv.out_proj", "blk.*.shortconv.out_proj",
     kFromChannels, kGatedConvolution},
    {Part::kFfnNorm, "model.layers.*.ffn_norm", "blk.*.ffn_norm", kOfWidth, kLfm2},
    {Part::kGate, "model.layers.*.feed_forward.w1", "blk.*.ffn_gate", kToFfn, kLfm2},
    {Part::kUp, "model.layers.*.feed_forward.w3", "blk.*.ffn_up", kToFfn, kLfm2},
    {Part::kDown, "model.layers.*.feed_forward.w2", "blk.*.ffn_down", kFromFfn, kLfm2},
    {Part::kDeltaChannels, "model.layers.*.linear_attn.in_proj_qkv", "blk.*.attn_qkv",
     kToDeltaChannels, kDeltaNet},
    {Part::kDeltaGate, "model.layers.*.linear_attn.in_proj_z", "blk.*.attn_gate", kToDeltaFeatures,
     kDeltaNet},
    {Part::kDeltaRate, "model.layers.*.linear_attn.in_proj_b", "blk.*.ssm_beta", kToDeltaHeads,
     kDeltaNet},
    {Part::kDeltaDecay, "model.layers.*.linear_attn.in_proj_a", "blk.*.ssm_alpha", kToDeltaHeads,
     kDeltaNet},
    {Part::kConvolution, "model.layers.*.linear_attn.conv1d", "blk.*.ssm_conv1d",
     kTapsOfDeltaChannels, kDeltaNet},
    {Part::kDeltaDecayLog, "model.layers.*.linear_attn.A_log", "blk.*.ssm_a", kOfDeltaHeads,
     kDeltaNet},
    {Part::kDeltaStepBias, "model.layers.*.linear_attn.dt_bias", "blk.*.ssm_dt", kOfDeltaHeads,
     kDeltaNet},
    {Part::kDeltaNorm, "model.layers.*.linear_attn.norm", "blk.*.ssm_norm", kOfDeltaValue,
     kDeltaNet},
    {Part::kDeltaOut, "model.layers.*.linear_attn.out_proj", "blk.*.ssm_out", kFromDeltaFeatures,
     kDeltaNet},
};

}  // namespace

std::span<const WeightRow> recurrent_rows() { return kRecurrentRows; }

}  // namespace weft::models
