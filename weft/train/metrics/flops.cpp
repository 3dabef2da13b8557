#include "weft/train/metrics/flops.h"

namespace weft::train {

double flops_per_token(const FlopSizes& sizes) {
  const double attention =
      static_cast<double>(sizes.attention_width) * static_cast<double>(sizes.sequence_length);
  const double per_parameter = sizes.trains_parameters ? 6 : 4;
  return per_parameter * static_cast<double>(sizes.num_parameters) + 12 * attention;
}

std::optional<double> model_flops_utilization(double tokens_per_s, double flops_per_token,
                                              double peak_flops) {
  if (peak_flops <= 0) return std::nullopt;
  return tokens_per_s * flops_per_token / peak_flops;
}

}  // namespace weft::train
