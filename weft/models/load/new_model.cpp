#include "weft/models/load/new_model.h"

#include <ATen/ops/full.h>
#include <ATen/ops/log.h>

#include <string_view>
#include <utility>

#include "weft/core/error.h"
#include "weft/io/tensor_file_builder.h"
#include "weft/models/registry.h"
#include "weft/nn/linear/dense_linear.h"
#include "weft/nn/parallel/init.h"

namespace weft::models {
namespace {

constexpr const char* kMakeModel = "models.make_model";

// Separates a run's parameters: FNV-1a of the name (Fowler, Noll and Vo, RFC 9923).
uint64_t stream_of(std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return hash;
}

WeightRules rules_of(const ModelConfig& config) {
  const auto nothing = io::TensorFileBuilder(kMakeModel).finish();
  return find_family(config.family).rules(config, *nothing);
}

}  // namespace

ModelConfig complete_config(ModelConfig config) {
  if (config.num_kv_heads == 0) config.num_kv_heads = config.num_heads;
  if (config.head_dim == 0 && config.num_heads > 0) {
    core::check<core::ConfigError>(config.width % config.num_heads == 0, kMakeModel, ": width ",
                                   config.width, " of ", config.num_heads,
                                   " heads, expected a multiple; or set head_dim");
    config.head_dim = config.width / config.num_heads;
  }
  find_family(config.family);
  try {
    check_config(config, kMakeModel);
  } catch (const core::FormatError& error) {
    core::fail<core::ConfigError>(error.what());
  }
  return config;
}

std::shared_ptr<const io::TensorFile> header_of(const ModelConfig& config) {
  io::TensorFileBuilder builder(kMakeModel);
  for (const WeightRule& rule : rules_of(config).weights) {
    std::vector<int64_t> shape = {rule.out, rule.in};
    if (rule.is_vector()) shape = rule.vector_shape(rule.in);
    builder.add_header(rule.file_name, io::Dtype::kF32, std::move(shape));
  }
  return builder.finish();
}

LoadPlan make_plan(const ModelConfig& config, int64_t num_ranks) {
  return LoadPlan(*header_of(config), rules_of(config), num_ranks);
}

InitialWeights::InitialWeights(const AgreedModel& agreed, int64_t rank, const InitOptions& options)
    : WeightSource(agreed.plan(), rank),
      options_(options),
      norm_weight_(1 - agreed.config().norm_offset) {}

std::shared_ptr<nn::LinearLike> InitialWeights::linear(const std::string& base,
                                                       bool with_bias) const {
  const std::string name = base + ".weight";
  const PlannedWeight& weight = plan().require(name);
  const io::MatrixSlice wanted = plan().slice(weight, rank());
  const bool by_columns = weight.rule.cut == Cut::kColumns;
  nn::ShardSpec spec;
  spec.sizes = {weight.rule.out, weight.rule.in};
  spec.dim = by_columns ? 1 : 0;
  spec.ranges = by_columns ? wanted.columns : wanted.rows;
  spec.dtype = options_.dtype;
  at::Tensor values =
      nn::make_shard(nn::Init::normal(0, options_.std), spec, options_.seed, stream_of(name));
  return std::make_shared<nn::DenseLinearImpl>(
      std::move(values), with_bias ? vector_or_undefined(base + ".bias") : at::Tensor());
}

at::Tensor InitialWeights::vector(const std::string& name) const {
  const WeightRule& rule = plan().require(name).rule;
  const io::MatrixSlice wanted = plan().slice(plan().require(name), rank());
  if (!rule.element_shape.empty()) return arrays(rule, wanted.columns);
  if (rule.first_numbers == FirstNumbers::kLogs) return logs(rule, wanted.columns);
  double value = name.ends_with(".bias") ? 0 : norm_weight_;
  if (rule.first_numbers == FirstNumbers::kOnes) value = 1;
  return at::full({shard::total_length(wanted.columns)}, value, options_.dtype);
}

// As transformers begins what heads forget with.
at::Tensor InitialWeights::logs(const WeightRule& rule,
                                const std::vector<shard::Range>& own) const {
  constexpr double kLowest = 0.01, kHighest = 16;
  nn::ShardSpec spec;
  spec.sizes = {rule.in};
  spec.ranges = own;
  spec.dtype = options_.dtype;
  return at::log(nn::make_shard(nn::Init::uniform(kLowest, kHighest), spec, options_.seed,
                                stream_of(rule.name)));
}

// Of a vector of arrays.
at::Tensor InitialWeights::arrays(const WeightRule& rule,
                                  const std::vector<shard::Range>& own) const {
  nn::ShardSpec spec;
  spec.sizes = {rule.in, rule.array_size()};
  spec.dim = 0;
  spec.ranges = own;
  spec.dtype = options_.dtype;
  const at::Tensor values =
      nn::make_shard(nn::Init::normal(0, options_.std), spec, options_.seed, stream_of(rule.name));
  return values.reshape(rule.vector_shape(values.size(0)));
}

AgreedModel agree_on(const ModelConfig& config, const dist::Group& group,
                     const InitOptions& options) {
  ModelConfig complete = complete_config(config);
  LoadPlan plan = make_plan(complete, group.size());
  return AgreedModel(std::move(complete), std::move(plan), group,
                     {"new model", core::join("seed ", options.seed, ", std ", options.std, ", ",
                                              c10::toString(options.dtype))});
}

std::shared_ptr<CausalLM> make_model(const ModelConfig& config, const dist::Group& group,
                                     const InitOptions& options) {
  const AgreedModel agreed = agree_on(config, group, options);
  const InitialWeights weights(agreed, group.rank(), options);
  return agreed.make(weights, options.layers, /*is_trainable=*/true);
}

}  // namespace weft::models
