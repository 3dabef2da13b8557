#include "weft/train/trainer/run_adapter.h"

#include <ATen/ops/empty.h>

#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/core/error.h"
#include "weft/core/json.h"
#include "weft/train/checkpoint/reader.h"
#include "weft/train/config/config_json.h"

namespace weft::train {
namespace {

using core::check;

constexpr std::string_view kFactorA = ".lora_a";
constexpr std::string_view kFactorB = ".lora_b";

// Parameters are those of nn::LoraLinear, by layer: "<place>.lora_a" and "<place>.lora_b".
std::vector<models::AdapterLayer> layers_of(const Manifest& manifest, const TrainConfig& config,
                                            const std::string& folder) {
  std::vector<models::AdapterLayer> layers;
  for (const auto& [name, a] : manifest.parameters) {
    if (!name.ends_with(kFactorA)) continue;
    models::AdapterLayer layer;
    layer.place = name.substr(0, name.size() - kFactorA.size());
    const auto b = manifest.parameters.find(layer.place + std::string(kFactorB));
    const bool fits = b != manifest.parameters.end() && a.sizes.size() == 2 &&
                      b->second.sizes.size() == 2 && a.sizes[0] == config.lora.rank &&
                      b->second.sizes[1] == config.lora.rank;
    check<core::FormatError>(fits, folder, ": ", core::quote(name), ": expected A [",
                             config.lora.rank, ", in] and B [out, ", config.lora.rank,
                             "], the rank of the run's lora.rank; take another checkpoint");
    layer.rank = config.lora.rank;
    layer.in = a.sizes[1];
    layer.out = b->second.sizes[0];
    layer.scale = config.lora.alpha / static_cast<double>(config.lora.rank);
    layers.push_back(std::move(layer));
  }
  return layers;
}

class CheckpointAdapters : public models::AdapterSource {
 public:
  CheckpointAdapters(std::unique_ptr<CheckpointReader> reader, const TrainConfig& config)
      : AdapterSource(reader->folder(), layers_of(reader->manifest(), config, reader->folder())),
        reader_(std::move(reader)) {}

  nn::LoraFactors read(const models::AdapterLayer& layer) const override {
    return {read_master(layer.place + std::string(kFactorA), {layer.rank, layer.in}),
            read_master(layer.place + std::string(kFactorB), {layer.out, layer.rank}), layer.scale};
  }

 private:
  at::Tensor read_master(const std::string& name, const std::vector<int64_t>& sizes) const {
    // Once, before the first is used: whoever asks for their sizes alone has not read them.
    if (!is_checked_) reader_->check_files();
    is_checked_ = true;
    const at::Tensor values = at::empty(sizes, at::TensorOptions(at::kFloat));
    reader_->read(
        "master", {name, sizes, std::nullopt, 0, {0, values.numel()}},
        std::span<float>(values.mutable_data_ptr<float>(), static_cast<size_t>(values.numel())));
    return values;
  }

  std::unique_ptr<CheckpointReader> reader_;
  mutable bool is_checked_ = false;
};

}  // namespace

RunAdapter open_run_adapter(const std::string& folder) {
  auto reader = std::make_unique<CheckpointReader>(folder);
  const core::Json trainer = core::parse_json(reader->manifest().trainer, folder);
  const std::string where = folder + ": trainer";
  check<core::FormatError>(trainer.is_object(), where,
                           ": expected an object; it is no checkpoint of weft lora");
  const auto* adapts = core::find(trainer, "adapters", where);
  check<core::ConfigError>(adapts != nullptr && adapts->is_boolean() && adapts->get<bool>(), folder,
                           ": has no adapters, expected a checkpoint of weft lora; that of weft "
                           "train is a model itself: weft convert writes it");
  RunAdapter run;
  run.config = config_from_json(core::require(trainer, "config", where), folder);
  run.adapters = std::make_unique<CheckpointAdapters>(std::move(reader), run.config);
  return run;
}

}  // namespace weft::train
