#include "weft/train/trainer/run_flops.h"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <chrono>

#include "weft/core/error.h"
#include "weft/models/decoder/decoder_names.h"
#include "weft/models/load/new_model.h"
#include "weft/train/metrics/flops.h"

namespace weft::train {
namespace {

using Clock = std::chrono::steady_clock;

// Large enough for full speed, small enough for tens of milliseconds.
constexpr int64_t kWidth = 1024;
constexpr int kRounds = 6;

// The best round: others met a cold cache or another program.
double measure_flops(at::ScalarType dtype) {
  const at::NoGradGuard no_grad;
  const at::Tensor a = at::ones({kWidth, kWidth}, dtype);
  at::Tensor product = at::empty_like(a);
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = Clock::now();
    at::matmul_out(product, a, a);
    const std::chrono::duration<double> seconds = Clock::now() - start;
    best = std::max(best, 2.0 * kWidth * kWidth * kWidth / seconds.count());
  }
  return best;
}

// A tied embedding counts, as the head.
bool is_looked_up(const models::ModelConfig& model, models::Part part) {
  return part == models::Part::kInputEmbedding ||
         (part == models::Part::kEmbedding && !model.is_tied);
}

int64_t parameters_of_token(const models::ModelConfig& model) {
  const auto places = models::part_places(model);
  const auto header = models::header_of(model);
  int64_t common = 0, of_experts = 0;
  for (const io::TensorMeta& tensor : header->tensors()) {
    const auto place = places.find(tensor.name.substr(0, tensor.name.rfind('.')));
    const bool is_weight = place != places.end();
    if (is_weight && is_looked_up(model, place->second.part)) continue;
    const bool is_of_expert = is_weight && models::is_expert_part(place->second.part);
    (is_of_expert ? of_experts : common) += c10::multiply_integers(tensor.shape);
  }
  const models::ExpertsConfig& experts = model.experts;
  if (experts.num_experts == 0) return common;
  return common + of_experts / experts.num_experts * experts.experts_per_token;
}

// Latent attention multiplies with keys and with values of other dims: half of a product each.
int64_t attention_width(const models::ModelConfig& model) {
  int64_t width = 0;
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    if (model.is_recurrent(layer)) continue;
    const int64_t keys = model.head_dim_of(layer);
    const int64_t values = model.latent.is_used() ? model.latent.value_dim : keys;
    width += model.num_heads * (keys + values) / 2;
  }
  return width;
}

}  // namespace

double run_flops_per_token(const TrainConfig& config, const models::ModelConfig& model,
                           TrainedPart part) {
  FlopSizes sizes;
  sizes.num_parameters = parameters_of_token(model);
  sizes.attention_width = attention_width(model);
  sizes.sequence_length = config.batch.sequence_length;
  sizes.trains_parameters = part == TrainedPart::kAll;
  return flops_per_token(sizes);
}

double run_peak_flops(const TrainConfig& config, const dist::Group& all) {
  if (config.log.peak_flops > 0) return config.log.peak_flops * static_cast<double>(all.size());
  all.barrier();
  const at::ScalarType dtype = config.train.dtype == "bfloat16" ? at::kBFloat16 : at::kFloat;
  at::Tensor sum = at::full({1}, measure_flops(dtype), at::kDouble);
  all.all_reduce(sum);
  return sum.item<double>();
}

}  // namespace weft::train
