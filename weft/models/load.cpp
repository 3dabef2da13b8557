#include "weft/models/load.h"

#include <utility>

#include "weft/core/error.h"
#include "weft/models/presharded.h"
#include "weft/models/registry.h"
#include "weft/nn/dense_linear.h"
#include "weft/nn/quantized_linear.h"

namespace weft::models {

WeightReader::WeightReader(const io::TensorFile& file, const LoadPlan& plan, int64_t rank,
                           Progress progress)
    : file_(file),
      plan_(plan),
      rank_(rank),
      progress_(std::move(progress)),
      planned_bytes_(plan.params().planned_bytes(rank)) {}

std::shared_ptr<nn::LinearLike> WeightReader::linear(const std::string& base,
                                                     bool with_bias) const {
  const PlannedWeight& weight = plan_.require(base + ".weight");
  const io::MatrixSlice wanted = plan_.slice(weight, rank_);
  io::MatrixSource source{weight.format, {}, wanted};
  for (size_t i = 0; i < weight.parts.size(); ++i) {
    source.parts.push_back(&plan_.recipe(weight, i, rank_));
  }
  io::LoadedMatrix loaded = io::load_matrix(file_, source, at::kFloat, &stats_);
  report();
  at::Tensor bias = with_bias ? vector_or_undefined(base + ".bias") : at::Tensor();
  if (auto* dense = std::get_if<at::Tensor>(&loaded)) {
    return std::make_shared<nn::DenseLinearImpl>(std::move(*dense), std::move(bias));
  }
  return std::make_shared<nn::QuantizedLinearImpl>(
      std::get<quant::QuantizedMatrix>(std::move(loaded)), std::move(bias));
}

shard::Layout WeightReader::layout(const std::string& base) const {
  const WeightRule& rule = plan_.require(base + ".weight").rule;
  shard::Layout layout = plan_.split(rule.split);
  layout.dim = rule.cut == Cut::kColumns ? 1 : 0;
  return layout;
}

at::Tensor WeightReader::vector(const std::string& name) const {
  at::Tensor vector =
      io::load_tensor(file_, plan_.recipe(plan_.require(name), 0, rank_), at::kFloat, &stats_);
  report();
  return vector;
}

at::Tensor WeightReader::vector_or_undefined(const std::string& name) const {
  return plan_.find(name) == nullptr ? at::Tensor() : vector(name);
}

void WeightReader::report() const {
  if (progress_) progress_(stats_.planned_bytes, planned_bytes_);
}

LoadPlan make_plan(const io::TensorFile& file, int64_t num_ranks, const LoadOptions& options) {
  const ModelConfig config = read_config(file);
  PlanOptions plan_options;
  plan_options.shard_info = options.shard_info;
  plan_options.functions = options.functions;
  plan_options.quantization = read_quantization_config(file);
  WeightRules rules = find_family(config.family).rules(config, file);
  std::optional<io::ShardInfo> pieces;
  if (options.shard_info == nullptr) pieces = presharded_info(file, rules, options.functions);
  if (pieces) plan_options.shard_info = &*pieces;
  return LoadPlan(file, rules, num_ranks, plan_options);
}

LoadedModel load_model(const io::TensorFile& file, const dist::Group& group,
                       const LoadOptions& options) {
  const ModelConfig config = read_config(file);
  const LoadPlan plan = make_plan(file, group.size(), options);
  group.check_agreement("model file", core::join(file.tensors().size(), " tensors, plan hash ",
                                                 std::hex, plan.params().hash()));
  const WeightReader reader(file, plan, group.rank(), options.progress);
  LoadedModel loaded;
  loaded.model = find_family(config.family).make(config, reader, group);
  loaded.model->eval();
  loaded.stats = reader.stats();
  return loaded;
}

}  // namespace weft::models
