#include "weft/train/trainer/run_model.h"

#include "weft/core/error.h"
#include "weft/models/config.h"
#include "weft/models/load.h"
#include "weft/nn/adapt.h"
#include "weft/quant/scheme.h"

namespace weft::train {
namespace {

std::shared_ptr<models::CausalLM> adapted_model(const TrainConfig& config,
                                                const dist::Group& group) {
  const auto file = io::TensorFile::open(config.model.from);
  auto model = models::load_model(*file, group).model;
  quantize_base(*model, config);
  nn::LoraOptions options;
  options.rank = config.lora.rank;
  options.alpha = config.lora.alpha;
  options.seed = static_cast<uint64_t>(config.train.seed);
  options.dropout = config.lora.dropout;
  nn::apply_lora(*model, config.lora.targets, options);
  model->train();
  return model;
}

}  // namespace

models::ModelConfig run_model_config(const TrainConfig& config, int64_t vocab_size) {
  const ModelSection& model = config.model;
  if (!model.from.empty()) {
    const auto known = models::read_config(*io::TensorFile::open(model.from));
    core::check<core::ConfigError>(vocab_size <= known.vocab_size, config.where("model.tokenizer"),
                                   ": ", vocab_size, " tokens, expected at most the ",
                                   known.vocab_size, " of ", model.from,
                                   "; leave it out to use the model's own");
    return known;
  }
  models::ModelConfig sizes;
  sizes.family = model.family;
  sizes.vocab_size = model.vocab_size == 0 ? vocab_size : model.vocab_size;
  sizes.width = model.hidden_size;
  sizes.num_layers = model.num_layers;
  sizes.num_heads = model.num_heads;
  sizes.num_kv_heads = model.num_kv_heads;
  sizes.head_dim = model.head_dim;
  sizes.ffn_width = model.intermediate_size;
  sizes.max_positions = model.max_positions;
  sizes.norm_eps = model.norm_eps;
  sizes.rope_base = model.rope_base;
  sizes.is_tied = model.tied;
  sizes.has_qkv_bias = model.family == "qwen2";
  sizes.has_head_norms = model.family == "qwen3";
  return models::complete_config(sizes);
}

void quantize_base(models::CausalLM& model, const TrainConfig& config) {
  if (config.lora.quantize_bits == 0) return;
  const auto scheme = quant::make_scheme(quant::Mode::kAffine, config.lora.quantize_bits, 0,
                                         config.where("lora.quantize_bits"));
  nn::quantize(model, scheme, [](const std::string& path) { return path.ends_with("_proj"); });
}

models::DeferredModel make_run_model(const TrainConfig& config, TrainedPart part,
                                     int64_t vocab_size, const dist::Group& group) {
  const models::ModelConfig sizes = run_model_config(config, vocab_size);
  if (part == TrainedPart::kAdapters) return {adapted_model(config, group), {}};
  if (!config.model.from.empty()) {
    return models::defer_model(io::TensorFile::open(config.model.from), group,
                               models::LoadOptions());
  }
  models::InitOptions init;
  init.seed = static_cast<uint64_t>(config.train.seed);
  init.std = config.model.init_std;
  return models::defer_model(sizes, group, init);
}

}  // namespace weft::train
