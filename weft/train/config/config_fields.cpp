#include "weft/train/config/config_fields.h"

#include "weft/train/config/new_families.h"

namespace weft::train {
namespace {

constexpr FieldLimits kSize = {1, 1e9, false};
constexpr FieldLimits kSizeOrDefault = {0, 1e9, false};
constexpr FieldLimits kRanks = {1, 1e6, false};
constexpr FieldLimits kCount = {0, 1e12, false};
constexpr FieldLimits kPositive = {0, 1e12, true};
constexpr FieldLimits kNotNegative = {0, 1e12, false};
constexpr FieldLimits kPeak = {0, 1e18, false};
constexpr FieldLimits kShare = {0, 1, false};
/// What doubles and JSON's readers keep exactly.
constexpr FieldLimits kSeed = {0, 9007199254740991.0, false};

using Fields = std::vector<ConfigField>;
using Choices = std::vector<std::string>;

ConfigField field(const char* name, ConfigField::Value value, FieldLimits limits = {},
                  Choices choices = {}) {
  ConfigField result;
  result.name = name;
  result.value = value;
  result.limits = limits;
  result.choices = std::move(choices);
  return result;
}

void add_model(Fields& out, ModelSection& s) {
  out.push_back(field("model.from", &s.from));
  out.push_back(field("model.tokenizer", &s.tokenizer));
  out.push_back(field("model.family", &s.family, {}, new_family_names()));
  out.push_back(field("model.vocab_size", &s.vocab_size, kSizeOrDefault));
  out.push_back(field("model.hidden_size", &s.hidden_size, kSizeOrDefault));
  out.push_back(field("model.num_layers", &s.num_layers, kSizeOrDefault));
  out.push_back(field("model.num_heads", &s.num_heads, kSizeOrDefault));
  out.push_back(field("model.num_kv_heads", &s.num_kv_heads, kSizeOrDefault));
  out.push_back(field("model.head_dim", &s.head_dim, kSizeOrDefault));
  out.push_back(field("model.intermediate_size", &s.intermediate_size, kSizeOrDefault));
  out.push_back(field("model.max_positions", &s.max_positions, kSizeOrDefault));
  out.push_back(field("model.rope_base", &s.rope_base, kPositive));
  out.push_back(field("model.norm_eps", &s.norm_eps, kPositive));
  out.push_back(field("model.tied", &s.tied));
  out.push_back(field("model.init_std", &s.init_std, kNotNegative));
}

void add_mesh(Fields& out, MeshSection& s) {
  out.push_back(field("mesh.replicas", &s.replicas, kRanks));
  out.push_back(field("mesh.dp", &s.dp, kRanks));
  out.push_back(field("mesh.pipe", &s.pipe, kRanks));
  out.push_back(field("mesh.pipe_layers", &s.pipe_layers, kSize));
  out.push_back(field("mesh.tp", &s.tp, kRanks));
  // Which there are, the table of backends says when the ranks are about to start.
  out.push_back(field("mesh.backend", &s.backend));
}

void add_batch(Fields& out, BatchSection& s) {
  out.push_back(field("batch.sequences", &s.sequences, kSize));
  out.push_back(field("batch.microbatch", &s.microbatch, kSizeOrDefault));
  out.push_back(field("batch.sequence_length", &s.sequence_length, kSize));
}

void add_train(Fields& out, TrainSection& s) {
  out.push_back(field("train.steps", &s.steps, kSize));
  out.push_back(field("train.seed", &s.seed, kSeed));
  out.push_back(field("train.dtype", &s.dtype, {}, {"float32", "bfloat16"}));
  out.push_back(field("train.checkpoint_activations", &s.checkpoint_activations));
  out.push_back(field("train.dropout", &s.dropout, kShare));
  out.push_back(field("train.sequence_parallel", &s.sequence_parallel));
  out.push_back(field("train.clip_norm", &s.clip_norm, kNotNegative));
  out.push_back(field("train.exact", &s.exact));
  out.push_back(field("train.threads", &s.threads, {0, 1024, false}));
}

void add_optimizer(Fields& out, OptimizerSection& s) {
  out.push_back(
      field("optimizer.name", &s.name, {}, {"adamw", "sgd", "adafactor", "lion", "muon"}));
  out.push_back(field("optimizer.lr", &s.lr, kPositive));
  out.push_back(field("optimizer.betas", &s.betas, kShare));
  out.push_back(field("optimizer.eps", &s.eps, kPositive));
  out.push_back(field("optimizer.momentum", &s.momentum, kShare));
  out.push_back(field("optimizer.weight_decay", &s.weight_decay, kNotNegative));
  out.push_back(field("optimizer.no_decay", &s.no_decay));
}

void add_schedule(Fields& out, ScheduleSection& s) {
  out.push_back(field("schedule.name", &s.name, {}, {"constant", "linear", "cosine", "wsd"}));
  out.push_back(field("schedule.warmup_steps", &s.warmup_steps, kCount));
  out.push_back(field("schedule.min_lr", &s.min_lr, kShare));
  out.push_back(field("schedule.decay_steps", &s.decay_steps, kCount));
}

void add_data(Fields& out, DataSection& s) {
  out.push_back(field("data.train", &s.train));
  out.push_back(field("data.eval", &s.eval));
  out.push_back(field("data.eval_fraction", &s.eval_fraction, kShare));
  out.push_back(field("data.pack", &s.pack));
  out.push_back(field("data.respect_documents", &s.respect_documents));
  out.push_back(field("data.cache", &s.cache));
}

void add_bookkeeping(Fields& out, TrainConfig& config) {
  out.push_back(field("eval.every", &config.eval.every, kCount));
  out.push_back(field("eval.sequences", &config.eval.sequences, kCount));
  out.push_back(field("checkpoint.folder", &config.checkpoint.folder));
  out.push_back(field("checkpoint.every", &config.checkpoint.every, kCount));
  out.push_back(field("checkpoint.keep", &config.checkpoint.keep, kCount));
  out.push_back(field("checkpoint.async", &config.checkpoint.is_async));
  out.push_back(field("checkpoint.max_lost", &config.checkpoint.max_lost, kCount));
  out.push_back(field("log.every", &config.log.every, {1, 1e12, false}));
  out.push_back(field("log.tensorboard", &config.log.tensorboard));
  out.push_back(field("log.peak_flops", &config.log.peak_flops, kPeak));
}

void add_lora(Fields& out, LoraSection& s) {
  out.push_back(field("lora.rank", &s.rank, {1, 65536, false}));
  out.push_back(field("lora.alpha", &s.alpha, kPositive));
  out.push_back(field("lora.targets", &s.targets));
  out.push_back(
      field("lora.quantize_bits", &s.quantize_bits, {0, 8, false}, {"0", "2", "3", "4", "6", "8"}));
  out.push_back(field("lora.dropout", &s.dropout, kShare));
  out.push_back(field("lora.shard_frozen", &s.shard_frozen));
}

}  // namespace

std::vector<ConfigField> config_fields(TrainConfig& config) {
  std::vector<ConfigField> fields;
  add_model(fields, config.model);
  add_mesh(fields, config.mesh);
  add_batch(fields, config.batch);
  add_train(fields, config.train);
  add_optimizer(fields, config.optimizer);
  add_schedule(fields, config.schedule);
  add_data(fields, config.data);
  add_bookkeeping(fields, config);
  add_lora(fields, config.lora);
  return fields;
}

std::string TrainConfig::where(const std::string& name) const {
  const auto found = sources.find(name);
  return found == sources.end() ? name : found->second + ": " + name;
}

}  // namespace weft::train
