#include "weft/models/load/deferred_model.h"

#include <ATen/ops/empty.h>

#include <utility>

#include "weft/models/load/plain_latents.h"
#include "weft/nn/linear/dense_linear.h"

namespace weft::models {
namespace {

// Where the values come from, together with the objects that it refers to.
struct Kept {
  std::shared_ptr<const io::TensorFile> file;
  AgreedModel agreed;
  std::unique_ptr<WeightSource> source = nullptr;

  at::Tensor values(const std::string& name) const {
    const WeightRule& rule = agreed.plan().require(name).rule;
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
    if (weight.rule.is_vector() || !io::makes_plain(weight.format.kind)) {
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
DeferredModel defer(std::shared_ptr<const Kept> kept, const Options& options) {
  DeferredModel deferred;
  deferred.model = kept->agreed.make(EmptyMatrices(*kept->source, options.dtype), options.layers,
                                     /*is_trainable=*/true);
  deferred.values = [kept = std::move(kept)](const std::string& name) {
    return kept->values(name);
  };
  return deferred;
}

}  // namespace

DeferredModel defer_model(const ModelConfig& config, const dist::Group& group,
                          const InitOptions& options) {
  const auto kept = std::make_shared<Kept>(Kept{nullptr, agree_on(config, group, options)});
  kept->source = std::make_unique<InitialWeights>(kept->agreed, group.rank(), options);
  return defer(kept, options);
}

DeferredModel defer_model(std::shared_ptr<const io::TensorFile> file, const dist::Group& group,
                          const LoadOptions& options) {
  LoadOptions trained = options;
  trained.is_trainable = true;
  if (auto plain = with_plain_latents(*file, LatentBytes::kRead)) file = std::move(plain);
  AgreedModel agreed = agree_on(*file, group, trained);
  const auto kept = std::make_shared<Kept>(Kept{std::move(file), std::move(agreed)});
  kept->source = std::make_unique<WeightReader>(*kept->file, kept->agreed.plan(), group.rank(),
                                                options.progress, options.dtype);
  return defer(kept, options);
}

}  // namespace weft::models
