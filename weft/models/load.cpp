#include "weft/models/load.h"

#include <algorithm>
#include <utility>

#include "weft/core/error.h"
#include "weft/models/registry.h"
#include "weft/nn/dense_linear.h"
#include "weft/nn/quantized_linear.h"

namespace weft::models {
namespace {

// FNV-1a: enough to see that two ranks look at different headers.
uint64_t hash_text(const std::string& text, uint64_t hash) {
  for (const unsigned char c : text) hash = (hash ^ c) * 0x100000001b3ULL;
  return hash;
}

std::string fingerprint(const io::TensorFile& file, const LoadPlan& plan) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const io::TensorMeta& meta : file.tensors()) {
    hash = hash_text(core::join(meta.name, meta.offset, core::list_text(meta.shape)), hash);
  }
  for (const WeightPlan& weight : plan.weights) hash = hash_text(weight.name + weight.split, hash);
  return core::join(file.tensors().size(), " tensors, header hash ", std::hex, hash);
}

}  // namespace

std::shared_ptr<nn::LinearLike> WeightReader::linear(const std::string& base,
                                                     bool with_bias) const {
  const WeightPlan& weight = plan_.find(base + ".weight");
  io::LoadedMatrix loaded =
      io::load_matrix(file_, weight.matrix, weight.slice, at::kFloat, &stats_);
  at::Tensor bias = with_bias ? vector_or_undefined(base + ".bias") : at::Tensor();
  if (auto* dense = std::get_if<at::Tensor>(&loaded)) {
    return std::make_shared<nn::DenseLinearImpl>(std::move(*dense), std::move(bias));
  }
  return std::make_shared<nn::QuantizedLinearImpl>(std::get<quant::AffineTensor>(std::move(loaded)),
                                                   std::move(bias));
}

shard::Layout WeightReader::layout(const std::string& base) const {
  const WeightPlan& weight = plan_.find(base + ".weight");
  shard::Layout layout = plan_.layouts.at(weight.split);
  layout.dim = weight.cut == Cut::kColumns ? 1 : 0;
  return layout;
}

at::Tensor WeightReader::vector(const std::string& name) const {
  const WeightPlan& weight = plan_.find(name);
  return io::load_vector(file_, weight.matrix.name, weight.matrix.in, weight.slice.columns,
                         at::kFloat, &stats_);
}

at::Tensor WeightReader::vector_or_undefined(const std::string& name) const {
  const auto& weights = plan_.weights;
  const bool is_planned = std::any_of(weights.begin(), weights.end(),
                                      [&](const auto& weight) { return weight.name == name; });
  return is_planned ? vector(name) : at::Tensor();
}

LoadedModel load_model(const io::TensorFile& file, const dist::Group& group) {
  const ModelConfig config = read_config(file);
  const Family& family = find_family(config.family);
  const LoadPlan plan = family.plan(config, file, group.size(), group.rank());
  check_all_used(file, plan);
  group.check_agreement("model file", fingerprint(file, plan));
  const WeightReader reader(file, plan);
  LoadedModel loaded;
  loaded.model = family.make(config, reader, group);
  loaded.model->eval();
  loaded.stats = reader.stats();
  return loaded;
}

}  // namespace weft::models
