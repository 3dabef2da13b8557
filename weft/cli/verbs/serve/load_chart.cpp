#include "weft/cli/verbs/serve/load_chart.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "weft/train/metrics/svg_plot.h"

namespace weft::cli {
namespace {

using nlohmann::json;
using train::PlotSeries;

// One curve over all runs: `of` is a run's value, or null where it has none.
template <typename Of>
PlotSeries curve(const std::vector<json>& runs, const char* x, std::string name, size_t color,
                 const Of& of) {
  PlotSeries series{std::move(name), {}, {}, color, true};
  for (const json& run : runs) {
    const json value = of(run);
    if (value.is_null()) continue;
    series.x.push_back(run.at(x).get<double>());
    series.y.push_back(value.get<double>());
  }
  return series;
}

std::vector<PlotSeries> percentile_curves(const std::vector<json>& runs, const char* x,
                                          const char* key) {
  std::vector<PlotSeries> all;
  for (const char* percentile : {"p50", "p90", "p99"}) {
    all.push_back(curve(runs, x, percentile, all.size(), [&](const json& run) {
      return run.at(key).is_null() ? json() : run.at(key).at(percentile);
    }));
  }
  return all;
}

std::vector<PlotSeries> answer_curves(const std::vector<json>& runs, const char* x) {
  const auto answers = [](const json& run) { return run.at("answers_per_s"); };
  const auto kept = [](const json& run) { return run.at("goodput").at("answers_per_s"); };
  std::vector<PlotSeries> all = {curve(runs, x, "answered", 0, answers)};
  if (runs.front().contains("goodput")) {
    all.push_back(curve(runs, x, "within the limits", 1, kept));
  }
  return all;
}

bool has_points(const std::vector<PlotSeries>& series) {
  return std::ranges::any_of(series, [](const PlotSeries& each) { return !each.x.empty(); });
}

}  // namespace

std::string load_chart(const json& report) {
  auto runs = report.at("runs").get<std::vector<json>>();
  const bool is_open = !runs.empty() && runs.front().contains("rate");
  const char* x = is_open ? "rate" : "clients";
  std::ranges::stable_sort(runs, {}, [&](const json& run) { return run.at(x).get<double>(); });
  train::PlotOptions options;
  options.x_label = is_open ? "requests begun a second" : "clients";
  options.height = 360;
  std::vector<std::string> plots;
  const auto add = [&](const std::string& title, const char* y, std::vector<PlotSeries> series) {
    options.title = title;
    options.y_label = y;
    if (plots.empty() || has_points(series)) plots.push_back(svg_plot(series, options));
  };
  add(report.value("model", "") + ": tokens of answers", "tokens/s",
      {curve(runs, x, "all clients", 0, [](const json& run) { return run.at("tokens_per_s"); })});
  add("answers", "answers/s", answer_curves(runs, x));
  add("time to the first token", "ms", percentile_curves(runs, x, "first_token_ms"));
  add("time between tokens", "ms", percentile_curves(runs, x, "between_tokens_ms"));
  return stacked_plots(plots, options);
}

}  // namespace weft::cli
