#include <span>

#include "weft/cli/flags.h"
#include "weft/cli/verbs.h"
#include "weft/core/error.h"
#include "weft/core/files/atomic_file.h"
#include "weft/train/metrics/svg_plot.h"

namespace weft::cli {

int run_plot(const Args& args) {
  CLI::App app("Draws the training and evaluation loss of runs as an SVG file.", "plot");
  std::vector<std::string> runs;
  std::string out;
  int64_t first_step = 1;
  train::PlotOptions options;
  options.title = "loss";
  app.add_option("runs", runs, "folders of runs, or their metrics.jsonl");
  app.add_option("-o,--out", out, "the SVG file to write; one that exists is replaced");
  app.add_option("--smooth", options.smoothing,
                 "smooth the curve: 0 (default) to below 1, e.g. 0.9");
  app.add_option("--from", first_step, "first step to draw (default: 1)")
      ->check(whole_number(1, INT64_MAX));
  app.add_option("--title", options.title, "text above the chart (default: loss)");
  if (!parse_flags(app, args, {"--out"})) return 0;
  core::check<core::ConfigError>(!runs.empty(), "plot: no run given; name a run's folder");
  std::vector<train::PlotSeries> series;
  for (size_t i = 0; i < runs.size(); ++i) {
    for (auto& each : train::loss_series(runs[i], i, first_step)) series.push_back(std::move(each));
  }
  // With one run, colours tell training and evaluation apart.
  if (runs.size() == 1 && series.size() == 2) series[1].color = 1;
  const std::string svg = train::svg_plot(series, options);
  core::AtomicFile file(out, svg.size());
  file.write(std::as_bytes(std::span(svg)));
  file.commit();
  return 0;
}

}  // namespace weft::cli
