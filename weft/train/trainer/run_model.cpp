#include "weft/train/trainer/run_model.h"

#include "weft/core/error.h"
#include "weft/models/config/config.h"
#include "weft/models/load/load.h"
#include "weft/nn/linear/adapt.h"
#include "weft/quant/scheme.h"
#include "weft/train/pipeline/stage_layers.h"
#include "weft/train/plan/sizes_of_config.h"

namespace weft::train {
namespace {

std::shared_ptr<models::CausalLM> adapted_model(const TrainConfig& config,
                                                const models::StageLayers& layers,
                                                const dist::Group& group) {
  const auto file = io::TensorFile::open(config.model.from);
  models::LoadOptions load;
  load.layers = layers;
  auto model = models::load_model(*file, group, load).model;
  quantize_base(*model, config);
  nn::LoraOptions options;
  options.rank = config.lora.rank;
  options.alpha = config.lora.alpha;
  options.seed = static_cast<uint64_t>(config.train.seed);
  options.dropout = config.lora.dropout;
  options.is_part = layers.has_value() && config.mesh.pipe > 1;
  nn::apply_lora(*model, config.lora.targets, options);
  model->train();
  return model;
}

models::StageLayers layers_of(const TrainConfig& config, const models::ModelConfig& model,
                              std::optional<int64_t> stage) {
  if (!stage) return std::nullopt;
  const auto layers = stage_layers(sizes_of(model), config.mesh.pipe, config.mesh.pipe_layers);
  return layers_of_stage(layers, *stage);
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
  core::check<core::ConfigError>(
      model.vocab_size == 0 || vocab_size <= model.vocab_size, config.where("model.vocab_size"),
      ": expected at least the tokenizer's ", vocab_size, " tokens, got ", model.vocab_size,
      "; leave it out to have as many rows");
  return models::complete_config(new_model_config(model, vocab_size));
}

bool is_quantized_for_lora(const std::string& path) { return path.ends_with("_proj"); }

void quantize_base(models::CausalLM& model, const TrainConfig& config) {
  if (config.lora.quantize_bits == 0) return;
  const auto scheme = quant::make_scheme(quant::Mode::kAffine, config.lora.quantize_bits, 0,
                                         config.where("lora.quantize_bits"));
  nn::quantize(model, scheme, is_quantized_for_lora);
}

models::DeferredModel make_run_model(const TrainConfig& config, TrainedPart part,
                                     int64_t vocab_size, const dist::Group& group,
                                     std::optional<int64_t> stage) {
  const models::ModelConfig sizes = run_model_config(config, vocab_size);
  const models::StageLayers layers = layers_of(config, sizes, stage);
  if (part == TrainedPart::kAdapters) return {adapted_model(config, layers, group), {}};
  if (!config.model.from.empty()) {
    models::LoadOptions load;
    load.layers = layers;
    return models::defer_model(io::TensorFile::open(config.model.from), group, load);
  }
  models::InitOptions init;
  init.seed = static_cast<uint64_t>(config.train.seed);
  init.std = config.model.init_std;
  init.layers = layers;
  return models::defer_model(sizes, group, init);
}

}  // namespace weft::train
