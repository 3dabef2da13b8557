#include "weft/models/load/deferred_model.h"

#include <ATen/ops/empty.h>

#include <ios>
#include <utility>

#include "weft/core/error.h"
#include "weft/models/decoder/tied_head.h"
#include "weft/models/registry.h"
#include "weft/nn/linear/dense_linear.h"

namespace weft::models {
namespace {

// The plan, a source of values, and whoever they refer to: as long as values may be asked for.
struct Kept {
  std::shared_ptr<const io::TensorFile> file;
  std::unique_ptr<LoadPlan> plan;
  std::unique_ptr<WeightSource> source;

  at::Tensor values(const std::string& name) const {
    const WeightRule& rule = plan->require(name).rule;
    if (rule.is_vector()) return source->vector(name);
    return source->linear(rule.base(), false)->dense_weight();
  }
};

// Gives floating matrices without values, and all else as another source has it.
class EmptyMatrices : public WeightSource {
 public:
  EmptyMatrices(const WeightSource& source, at::ScalarType dtype)
      : WeightSource(source.plan(), source.rank()), source_(source), dtype_(dtype) {}

  std::shared_ptr<nn::LinearLike> linear(const std::string& base, bool with_bias) const override {
    const PlannedWeight& weight = plan().require(base + ".weight");
    if (weight.rule.is_vector() || weight.format.kind != io::MatrixKind::kDense) {
      return source_.linear(base, with_bias);
    }
    const io::MatrixSlice slice = plan().slice(weight, rank());
    at::Tensor values =
        at::empty({shard::total_length(slice.rows), shard::total_length(slice.columns)}, dtype_);
    return std::make_shared<nn::DenseLinearImpl>(
        std::move(values), with_bias ? vector_or_undefined(base + ".bias") : at::Tensor());
  }
  at::Tensor vector(const std::string& name) const override { return source_.vector(name); }

 private:
  const WeightSource& source_;
  at::ScalarType dtype_;
};

template <class Options>
DeferredModel defer(std::shared_ptr<const Kept> kept, const ModelConfig& config,
                    const dist::Group& group, const Options& options) {
  DeferredModel deferred;
  deferred.model = find_family(config.family)
                       .make(config, EmptyMatrices(*kept->source, options.dtype),
                             make_stage(options.layers, config.num_layers), group);
  deferred.model->train();
  require_gradients(*deferred.model);
  deferred.values = [kept = std::move(kept)](const std::string& name) {
    return kept->values(name);
  };
  return deferred;
}

}  // namespace

DeferredModel defer_model(const ModelConfig& given, const dist::Group& group,
                          const InitOptions& options) {
  const ModelConfig config = complete_config(given);
  auto kept = std::make_shared<Kept>();
  kept->plan = std::make_unique<LoadPlan>(make_plan(config, group.size()));
  group.check_agreement("new model", core::join("plan hash ", std::hex, kept->plan->params().hash(),
                                                std::dec, ", seed ", options.seed, ", std ",
                                                options.std, ", ", c10::toString(options.dtype)));
  kept->source = std::make_unique<InitialWeights>(*kept->plan, group.rank(), options);
  return defer(std::move(kept), config, group, options);
}

DeferredModel defer_model(std::shared_ptr<const io::TensorFile> file, const dist::Group& group,
                          const LoadOptions& options) {
  const ModelConfig config = read_config(*file);
  auto kept = std::make_shared<Kept>();
  kept->plan = std::make_unique<LoadPlan>(make_plan(*file, group.size(), options));
  group.check_agreement("model file", core::join(file->tensors().size(), " tensors, plan hash ",
                                                 std::hex, kept->plan->params().hash()));
  check_copied_head(config, *file, group);
  kept->source = std::make_unique<WeightReader>(*file, *kept->plan, group.rank(), options.progress,
                                                options.dtype);
  kept->file = std::move(file);
  return defer(std::move(kept), config, group, options);
}

}  // namespace weft::models
