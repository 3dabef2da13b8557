#include <filesystem>

#include "weft/cli/output.h"
#include "weft/cli/verbs/run.h"
#include "weft/core/error.h"
#include "weft/core/files/atomic_file.h"
#include "weft/train/metrics/metrics_file.h"
#include "weft/train/metrics/svg_plot.h"

namespace weft::cli {
namespace {

Inputs metrics_of(const std::vector<std::string>& runs) {
  Inputs files;
  for (const std::filesystem::path run : runs) {
    files.push_back(std::filesystem::is_directory(run) ? run / train::kMetricsName : run);
  }
  return files;
}

// A run's folder may get drawings, and lose nothing but drawings.
void check_spares_runs(const std::string& out, const Inputs& metrics) {
  if (!std::filesystem::exists(out) || out.ends_with(".svg")) return;
  for (const std::string& file : metrics) {
    check_lies_elsewhere(out, std::filesystem::path(file).parent_path());
  }
}

}  // namespace

int run_plot(const PlotVerbOptions& options) {
  const Inputs metrics = metrics_of(options.runs);
  check_new_file(options.out, options.force, metrics);
  check_spares_runs(options.out, metrics);
  std::vector<train::PlotSeries> series;
  for (size_t i = 0; i < options.runs.size(); ++i) {
    for (auto& each : train::loss_series(options.runs[i], i, options.first_step)) {
      series.push_back(std::move(each));
    }
  }
  // With one run, colours tell training and evaluation apart.
  if (options.runs.size() == 1 && series.size() == 2) series[1].color = 1;
  const std::string svg = train::svg_plot(series, options.plot);
  core::write_file_atomically(options.out, svg);
  return 0;
}

}  // namespace weft::cli
