#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "weft/models/load/plan.h"
#include "weft/models/model.h"
#include "weft/nn/adapters/attach_lora.h"

namespace weft::models {

/// A low-rank adapter of one linear layer, as its header describes it: A [rank, in], B [out, rank].
struct AdapterLayer {
  /// The layer's path, Hugging Face's spelling: "model.layers.0.self_attn.q_proj".
  std::string place;
  int64_t rank = 0;
  int64_t in = 0;
  int64_t out = 0;
  /// What the product of A and B is multiplied by, e.g. alpha / rank.
  double scale = 1;
};

/// Adapters of a model's layers that somebody keeps: a PEFT folder, a checkpoint of a training run.
class AdapterSource {
 public:
  AdapterSource(const AdapterSource&) = delete;
  AdapterSource& operator=(const AdapterSource&) = delete;
  virtual ~AdapterSource() = default;

  /// Begins messages.
  const std::string& path() const { return path_; }
  const std::vector<AdapterLayer>& layers() const { return layers_; }
  /// One of them, whole, float32. Throws FormatError, IoError.
  virtual nn::LoraFactors read(const AdapterLayer& layer) const = 0;

 protected:
  AdapterSource(std::string path, std::vector<AdapterLayer> layers)
      : path_(std::move(path)), layers_(std::move(layers)) {}

 private:
  std::string path_;
  std::vector<AdapterLayer> layers_;
};

/// Throws ConfigError unless the model that is planned has all layers of the adapters, with their
/// sizes; `model` is its path, for messages. From headers alone.
void check_adapter(const AdapterSource& adapters, const LoadPlan& plan, const std::string& model);

/// Puts the adapters beside the layers of `model`, which stays frozen and is not fused, for
/// sequences that use `number` (nn::AdapterScope; 0: all that name none): each rank reads all and
/// keeps its part. After check_adapter. Not collective; throws ConfigError for a layer that has an
/// adapter of that number, FormatError, IoError.
void attach_adapter(CausalLM& model, const AdapterSource& adapters, int64_t number = 0);

}  // namespace weft::models
