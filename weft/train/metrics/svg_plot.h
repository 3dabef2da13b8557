#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft::train {

/// One curve of a chart.
struct PlotSeries {
  /// In the legend.
  std::string name;
  /// The same number of each; points that are not finite interrupt the curve. x ascends.
  std::vector<double> x;
  std::vector<double> y;
  /// Curves of one run share a colour.
  size_t color = 0;
  /// Dashed, with a dot for each point, never smoothed: for evaluations.
  bool is_sparse = false;
};

/// How a chart looks.
struct PlotOptions {
  std::string title;
  std::string x_label = "step";
  std::string y_label = "loss";
  /// Pixels.
  int width = 960;
  int height = 540;
  /// 0 to below 1: how much of the smoothed curve's last value stays in the next; the curve itself
  /// stands pale behind it. 0: not smoothed.
  double smoothing = 0;
};

/// A line chart as one SVG 1.1 document without outside parts. Throws ConfigError if there is no
/// finite point, or the smoothing is out of range.
std::string svg_plot(const std::vector<PlotSeries>& series, const PlotOptions& options);

/// Documents of svg_plot with these options' size as one, the first on top.
std::string stacked_plots(const std::vector<std::string>& plots, const PlotOptions& options);

/// Round numbers (1, 2, 2.5 or 5 times a power of ten apart), about `count` of them, that lie from
/// `low` to `high`.
std::vector<double> round_ticks(double low, double high, int count);

/// The exponential moving average, corrected for its start: the first is `values[0]`. What is not
/// finite stays as it is and does not count.
std::vector<double> smoothed(const std::vector<double>& values, double smoothing);

/// Training and, if there was any, evaluation loss of a run's folder, or of a metrics.jsonl, for
/// svg_plot, from step `first_step` on. Throws FormatError, ConfigError if it has no such steps.
std::vector<PlotSeries> loss_series(const std::string& run, size_t color, int64_t first_step = 1);

}  // namespace weft::train
