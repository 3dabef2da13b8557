#include "weft/train/metrics/svg_plot.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/core/error_text.h"
#include "tests/core/temp_dir.h"
#include "weft/train/metrics/metrics_file.h"

namespace weft::train {
namespace {

using weft::testing::error_text;
using weft::testing::TempDir;
using Numbers = std::vector<double>;

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

PlotSeries series_of(const Numbers& y) {
  PlotSeries series;
  series.name = "run";
  series.y = y;
  for (size_t i = 0; i < y.size(); ++i) series.x.push_back(static_cast<double>(i + 1));
  return series;
}

void write_run(const std::string& path, int64_t steps) {
  MetricsFile file(path, 0);
  for (int64_t step = 1; step <= steps; ++step) {
    StepMetrics metrics;
    metrics.step = step;
    metrics.loss = 4.0 / static_cast<double>(step);
    if (step % 10 == 0) metrics.eval_loss = metrics.loss + 0.5;
    file.append(metrics);
  }
}

TEST(RoundTicks, AreRoundAndInside) {
  EXPECT_EQ(round_ticks(0, 10, 5), (Numbers{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(round_ticks(1, 1000, 5), (Numbers{200, 400, 600, 800, 1000}));
  const Numbers small = round_ticks(2.31, 2.48, 4);
  ASSERT_EQ(small.size(), 3U);
  EXPECT_NEAR(small[0], 2.35, 1e-12);
  EXPECT_NEAR(small[2], 2.45, 1e-12);
  EXPECT_EQ(round_ticks(-1, 1, 4), (Numbers{-1, -0.5, 0, 0.5, 1}));
}

TEST(Smoothed, IsAnAverageCorrectedForItsStart) {
  EXPECT_EQ(smoothed({3, 1, 5}, 0), (Numbers{3, 1, 5}));
  const Numbers half = smoothed({4, 1}, 0.5);
  EXPECT_DOUBLE_EQ(half[0], 4);
  EXPECT_DOUBLE_EQ(half[1], 2);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Numbers gap = smoothed({4, nan, 1}, 0.5);
  EXPECT_TRUE(std::isnan(gap[1]));
  EXPECT_DOUBLE_EQ(gap[2], 2);
}

TEST(SvgPlot, DrawsACurveThroughItsPoints) {
  PlotOptions options;
  options.title = "a < b & c";
  const std::string svg = svg_plot({series_of({3, 2, 1})}, options);
  // 960 x 540 pixels less margins of 72, 28, 56, 56: x from 72 to 932; y with a twentieth of room.
  EXPECT_NE(svg.find("points=\"72.0,75.5 502.0,270.0 932.0,464.5\""), std::string::npos) << svg;
  EXPECT_NE(svg.find(">a &lt; b &amp; c</text>"), std::string::npos);
  EXPECT_NE(svg.find(">run</text>"), std::string::npos);
  EXPECT_EQ(count_of(svg, "<polyline"), 1);
  EXPECT_EQ(svg.rfind("<svg ", 0), 0U);
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
}

TEST(SvgPlot, PutsThePaleCurveBehindTheSmoothOne) {
  PlotOptions options;
  options.smoothing = 0.5;
  const std::string svg = svg_plot({series_of({3, 1, 3, 1})}, options);
  EXPECT_EQ(count_of(svg, "<polyline"), 2);
  EXPECT_EQ(count_of(svg, "stroke-opacity"), 1);
  EXPECT_LT(svg.find("stroke-opacity"), svg.find("stroke-width=\"2\" points"));
}

TEST(SvgPlot, InterruptsTheCurveWhereThereIsNoNumber) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::string svg = svg_plot({series_of({3, 2, nan, 1})}, {});
  EXPECT_EQ(count_of(svg, "<polyline"), 2);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

TEST(SvgPlot, DrawsOnePointAndFlatCurves) {
  EXPECT_EQ(count_of(svg_plot({series_of({2})}, {}), "<circle"), 1);
  const std::string flat = svg_plot({series_of({2, 2, 2})}, {});
  EXPECT_EQ(flat.find("inf"), std::string::npos);
  EXPECT_NE(flat.find(",270.0"), std::string::npos);
}

TEST(SvgPlot, KeepsTheExtremesOfALongCurve) {
  Numbers y(100'000, 1.0);
  y[70'001] = 9;
  const std::string svg = svg_plot({series_of(y)}, {});
  EXPECT_LT(svg.size(), 60'000U);
  EXPECT_NE(svg.find(",75.5"), std::string::npos);
}

TEST(SvgPlot, RefusesWhatItCannotDraw) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(error_text([&] { svg_plot({series_of({nan})}, {}); }),
            "ConfigError: plot: expected at least one finite point, got none; is the run empty?");
  PlotOptions options;
  options.smoothing = 1;
  EXPECT_EQ(error_text([&] { svg_plot({series_of({1})}, options); }),
            "ConfigError: plot: smoothing: expected a number from 0 to below 1, got 1; e.g. 0.9");
}

TEST(LossSeries, ReadsTrainingAndEvaluation) {
  const TempDir dir;
  write_run(dir.at(kMetricsName), 20);
  const auto series = loss_series(dir.path(), 3);
  ASSERT_EQ(series.size(), 2U);
  EXPECT_EQ(series[0].x.size(), 20U);
  EXPECT_EQ(series[0].y[1], 2.0);
  EXPECT_TRUE(series[0].name.ends_with(" train: 0.200")) << series[0].name;
  EXPECT_EQ(series[1].x, (Numbers{10, 20}));
  EXPECT_TRUE(series[1].is_sparse);
  EXPECT_EQ(series[1].color, 3U);
  EXPECT_EQ(loss_series(dir.at(kMetricsName), 0)[0].name, series[0].name);
  EXPECT_EQ(loss_series(dir.path(), 0, 11)[0].x.front(), 11);
  EXPECT_EQ(loss_series(dir.path(), 0, 11)[1].x, (Numbers{20}));
}

TEST(LossSeries, RefusesAnEmptyRun) {
  const TempDir dir;
  write_run(dir.at(kMetricsName), 0);
  const std::string error = error_text([&] { loss_series(dir.path(), 0); });
  EXPECT_NE(error.find("expected a step from 1 on, got none; plot it once"), std::string::npos)
      << error;
  EXPECT_EQ(error_text([&] { loss_series(dir.at("no"), 0); }).rfind("FormatError", 0), 0U);
}

}  // namespace
}  // namespace weft::train
