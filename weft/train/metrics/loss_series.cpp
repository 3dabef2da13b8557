#include <filesystem>

#include "weft/core/error.h"
#include "weft/train/metrics/human_text.h"
#include "weft/train/metrics/metrics_file.h"
#include "weft/train/metrics/svg_plot.h"

namespace weft::train {
namespace {

// The run's folder's name, without what it lies in.
std::string run_name(const std::filesystem::path& metrics_path) {
  const auto absolute = std::filesystem::absolute(metrics_path).lexically_normal();
  return absolute.parent_path().filename().string();
}

void add_point(PlotSeries& series, int64_t step, double loss) {
  series.x.push_back(static_cast<double>(step));
  series.y.push_back(loss);
}

// The legend says where a curve ends.
void name_series(PlotSeries& series, const std::string& run, const char* kind) {
  series.name = core::join(run, " ", kind, ": ", fixed_text(series.y.back(), 3));
}

}  // namespace

std::vector<PlotSeries> loss_series(const std::string& run, size_t color, int64_t first_step) {
  std::filesystem::path path = run;
  if (std::filesystem::is_directory(path)) path /= kMetricsName;
  PlotSeries train, eval;
  for (const StepMetrics& metrics : read_metrics(path.string())) {
    if (metrics.step < first_step) continue;
    add_point(train, metrics.step, metrics.loss);
    if (metrics.eval_loss) add_point(eval, metrics.step, *metrics.eval_loss);
  }
  core::check<core::ConfigError>(!train.x.empty(), path.string(), ": expected a step from ",
                                 first_step,
                                 " on, got none; plot it once training has come so far");
  train.color = eval.color = color;
  eval.is_sparse = true;
  name_series(train, run_name(path), "train");
  if (eval.x.empty()) return {std::move(train)};
  name_series(eval, run_name(path), "eval");
  return {std::move(train), std::move(eval)};
}

}  // namespace weft::train
