#include "weft/train/trainer/run_flops.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>

#include "weft/core/error.h"
#include "weft/train/metrics/flops.h"
#include "weft/train/plan/sizes_of_config.h"

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

}  // namespace

double run_flops_per_token(const TrainConfig& config, const models::ModelConfig& model,
                           TrainedPart part) {
  if (model.experts.num_experts > 0) return 0;
  FlopSizes sizes;
  sizes.num_parameters = num_matmul_parameters(sizes_of(model));
  sizes.num_layers = model.num_layers;
  sizes.attention_width = model.num_heads * model.head_dim;
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
