#include "weft/train/metrics/svg_plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "weft/core/error.h"
#include "weft/train/metrics/human_text.h"

namespace weft::train {
namespace {

using core::join;
using Point = std::pair<double, double>;

// Okabe and Ito's colours, told apart by people who see red and green alike.
constexpr std::array<const char*, 7> kColors = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                                "#E69F00", "#56B4E9", "#4D4D4D"};
constexpr double kLeft = 72;
constexpr double kRight = 28;
constexpr double kTop = 56;
constexpr double kBottom = 56;
constexpr double kLegendRow = 20;
// About the width of a letter of 12 pixels.
constexpr double kLetterWidth = 6.6;
// Two points per pixel say all.
constexpr size_t kMaxPoints = 1600;
constexpr size_t kNoisyPoints = 400;

// From data to pixels.
struct Frame {
  double x_low, x_high, y_low, y_high;
  double left, right, top, bottom;

  double x(double value) const {
    return left + (value - x_low) / (x_high - x_low) * (right - left);
  }
  double y(double value) const {
    return bottom - (value - y_low) / (y_high - y_low) * (bottom - top);
  }
};

std::string pixel(double value) { return fixed_text(value, 1); }

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '&') {
      safe += "&amp;";
    } else if (c == '<') {
      safe += "&lt;";
    } else if (c == '>') {
      safe += "&gt;";
    } else {
      // Other control characters have no place in XML.
      safe += byte < 0x20 ? ' ' : c;
    }
  }
  return safe;
}

struct Span {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  // Some room, and never nothing.
  void widen(double share) {
    const double room = high > low ? (high - low) * share : std::max(std::abs(high), 1.0) * 0.5;
    low -= room;
    high += room;
  }
};

bool is_finite(const PlotSeries& series, size_t i) {
  return std::isfinite(series.x[i]) && std::isfinite(series.y[i]);
}

Frame make_frame(const std::vector<PlotSeries>& series, const PlotOptions& options) {
  Span x, y;
  for (const PlotSeries& each : series) {
    for (size_t i = 0; i < each.x.size(); ++i) {
      if (!is_finite(each, i)) continue;
      x.add(each.x[i]);
      y.add(each.y[i]);
    }
  }
  core::check<core::ConfigError>(x.low <= x.high,
                                 "plot: expected at least one finite point, got none; is the run "
                                 "empty?");
  if (x.low == x.high) x.widen(0);
  y.widen(0.05);
  return {
      x.low, x.high, y.low, y.high, kLeft, options.width - kRight, kTop, options.height - kBottom};
}

// Digits after the point that tell neighbouring ticks apart.
int tick_digits(const std::vector<double>& ticks) {
  if (ticks.size() < 2) return 2;
  const double step = ticks[1] - ticks[0];
  int digits = 0;
  for (double power = 1; digits < 12; ++digits, power *= 10) {
    if (std::abs(step * power - std::round(step * power)) < 1e-6 * step * power) break;
  }
  return digits;
}

std::string tick_text(double value, int digits) {
  const bool is_large = digits == 0 && std::abs(value) >= 1e4 && std::abs(value) < 1e15;
  return is_large ? grouped_text(static_cast<int64_t>(value)) : fixed_text(value, digits);
}

std::string text_element(double x, double y, const char* attributes, const std::string& text) {
  return join("<text x=\"", pixel(x), "\" y=\"", pixel(y), "\" ", attributes, ">", escaped(text),
              "</text>\n");
}

std::string axes(const Frame& frame) {
  std::string out;
  const auto y_ticks = round_ticks(frame.y_low, frame.y_high, 7);
  const int y_digits = tick_digits(y_ticks);
  for (const double tick : y_ticks) {
    const std::string y = pixel(frame.y(tick));
    out += join("<line x1=\"", pixel(frame.left), "\" y1=\"", y, "\" x2=\"", pixel(frame.right),
                "\" y2=\"", y, "\" stroke=\"#E6E8EB\"/>\n");
    out += text_element(frame.left - 10, frame.y(tick) + 4, "text-anchor=\"end\" fill=\"#5F6670\"",
                        tick_text(tick, y_digits));
  }
  const auto x_ticks = round_ticks(frame.x_low, frame.x_high, 8);
  const int x_digits = tick_digits(x_ticks);
  for (const double tick : x_ticks) {
    const std::string x = pixel(frame.x(tick));
    out += join("<line x1=\"", x, "\" y1=\"", pixel(frame.bottom), "\" x2=\"", x, "\" y2=\"",
                pixel(frame.bottom + 5), "\" stroke=\"#9AA1AB\"/>\n");
    out += text_element(frame.x(tick), frame.bottom + 20, "text-anchor=\"middle\" fill=\"#5F6670\"",
                        tick_text(tick, x_digits));
  }
  out += join("<line x1=\"", pixel(frame.left), "\" y1=\"", pixel(frame.bottom), "\" x2=\"",
              pixel(frame.right), "\" y2=\"", pixel(frame.bottom), "\" stroke=\"#9AA1AB\"/>\n");
  return out;
}

std::string labels(const Frame& frame, const PlotOptions& options) {
  std::string out = text_element(
      frame.left, 32, "font-size=\"17\" font-weight=\"600\" fill=\"#1F2328\"", options.title);
  out += text_element((frame.left + frame.right) / 2, options.height - 14.0,
                      "text-anchor=\"middle\" fill=\"#3D444D\"", options.x_label);
  const double middle = (frame.top + frame.bottom) / 2;
  const std::string turned = join(
      "text-anchor=\"middle\" fill=\"#3D444D\" transform=\"rotate(-90 20 ", pixel(middle), ")\"");
  return out + text_element(20, middle, turned.c_str(), options.y_label);
}

// The lowest and the highest point of each of this many runs, which is what an eye sees of the
// curve.
std::vector<Point> thinned(const std::vector<Point>& points) {
  if (points.size() <= kMaxPoints) return points;
  std::vector<Point> kept;
  const size_t buckets = kMaxPoints / 2;
  for (size_t b = 0; b < buckets; ++b) {
    const auto begin = points.begin() + static_cast<std::ptrdiff_t>(points.size() * b / buckets);
    const auto end =
        points.begin() + static_cast<std::ptrdiff_t>(points.size() * (b + 1) / buckets);
    auto [low, high] = std::minmax_element(
        begin, end, [](const Point& a, const Point& b) { return a.second < b.second; });
    if (high < low) std::swap(low, high);
    kept.push_back(*low);
    if (low != high) kept.push_back(*high);
  }
  return kept;
}

// Draws curves without gaps: a number that is not finite ends one.
std::vector<std::vector<Point>> runs_of(const PlotSeries& series, const std::vector<double>& y) {
  std::vector<std::vector<Point>> runs(1);
  for (size_t i = 0; i < y.size(); ++i) {
    if (is_finite(series, i)) {
      runs.back().emplace_back(series.x[i], y[i]);
    } else if (!runs.back().empty()) {
      runs.emplace_back();
    }
  }
  if (runs.back().empty()) runs.pop_back();
  return runs;
}

std::string polyline(const Frame& frame, const std::vector<Point>& points, const char* color,
                     const std::string& attributes) {
  std::string out =
      join("<polyline fill=\"none\" stroke=\"", color,
           "\" stroke-linejoin=\"round\" stroke-linecap=\"round\" ", attributes, " points=\"");
  const char* separator = "";
  for (const auto& [x, y] : thinned(points)) {
    out += join(separator, pixel(frame.x(x)), ",", pixel(frame.y(y)));
    separator = " ";
  }
  return out + "\"/>\n";
}

std::string dot(double x, double y, const char* color) {
  return join("<circle cx=\"", pixel(x), "\" cy=\"", pixel(y), "\" r=\"3\" fill=\"", color,
              "\" stroke=\"#FFFFFF\" stroke-width=\"1\"/>\n");
}

std::string sparse_curve(const Frame& frame, const PlotSeries& series, const char* color) {
  std::string out;
  for (const auto& run : runs_of(series, series.y)) {
    out += polyline(frame, run, color, "stroke-width=\"1.6\" stroke-dasharray=\"5 4\"");
    for (const auto& [x, y] : thinned(run)) out += dot(frame.x(x), frame.y(y), color);
  }
  return out;
}

std::string dense_curve(const Frame& frame, const PlotSeries& series, const char* color,
                        double smoothing) {
  std::string out;
  if (smoothing > 0) {
    for (const auto& run : runs_of(series, series.y)) {
      out += polyline(frame, run, color, "stroke-width=\"1\" stroke-opacity=\"0.25\"");
    }
  }
  // A noisy curve of many points is a band already.
  const bool is_noisy = smoothing == 0 && series.y.size() > kNoisyPoints;
  for (const auto& run : runs_of(series, smoothed(series.y, smoothing))) {
    out += polyline(frame, run, color, is_noisy ? "stroke-width=\"1\"" : "stroke-width=\"2\"");
    if (run.size() == 1) out += dot(frame.x(run[0].first), frame.y(run[0].second), color);
  }
  return out;
}

std::string legend(const Frame& frame, const std::vector<PlotSeries>& series) {
  size_t letters = 0;
  for (const PlotSeries& each : series) letters = std::max(letters, each.name.size());
  const double width = 52 + kLetterWidth * static_cast<double>(letters);
  const double height = kLegendRow * static_cast<double>(series.size()) + 8;
  const double left = frame.right - width - 8;
  const double top = frame.top + 8;
  std::string out = join(
      "<rect x=\"", pixel(left), "\" y=\"", pixel(top), "\" width=\"", pixel(width), "\" height=\"",
      pixel(height), "\" rx=\"6\" fill=\"#FFFFFF\" fill-opacity=\"0.9\" stroke=\"#E6E8EB\"/>\n");
  double y = top + 18;
  for (const PlotSeries& each : series) {
    const char* color = kColors[each.color % kColors.size()];
    const char* dashes = each.is_sparse ? " stroke-dasharray=\"5 4\"" : "";
    out += join("<line x1=\"", pixel(left + 10), "\" y1=\"", pixel(y - 4), "\" x2=\"",
                pixel(left + 34), "\" y2=\"", pixel(y - 4), "\" stroke=\"", color,
                "\" stroke-width=\"2\"", dashes, "/>\n");
    if (each.is_sparse) out += dot(left + 22, y - 4, color);
    out += text_element(left + 42, y, "fill=\"#1F2328\"", each.name);
    y += kLegendRow;
  }
  return out;
}

}  // namespace

std::vector<double> round_ticks(double low, double high, int count) {
  const double rough = (high - low) / count;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.5, 2.0, 1.0}) {
    if (factor * power >= rough) step = factor * power;
  }
  std::vector<double> ticks;
  for (double i = std::ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; ++i) {
    ticks.push_back(i == 0 ? 0 : i * step);
  }
  return ticks;
}

std::vector<double> smoothed(const std::vector<double>& values, double smoothing) {
  std::vector<double> result;
  double sum = 0;
  double weight = 0;
  for (const double value : values) {
    if (!std::isfinite(value)) {
      result.push_back(value);
      continue;
    }
    sum = smoothing * sum + (1 - smoothing) * value;
    weight = smoothing * weight + (1 - smoothing);
    result.push_back(sum / weight);
  }
  return result;
}

std::string svg_plot(const std::vector<PlotSeries>& series, const PlotOptions& options) {
  core::check<core::ConfigError>(options.smoothing >= 0 && options.smoothing < 1,
                                 "plot: smoothing: expected a number from 0 to below 1, got ",
                                 options.smoothing, "; e.g. 0.9");
  const Frame frame = make_frame(series, options);
  std::string out =
      join("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", options.width, "\" height=\"",
           options.height, "\" viewBox=\"0 0 ", options.width, " ", options.height,
           "\" font-family=\"Inter, Helvetica, Arial, 'DejaVu Sans', sans-serif\" "
           "font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#FFFFFF\"/>\n");
  out += axes(frame) + labels(frame, options);
  // Evaluations last: few points, over many.
  for (const PlotSeries& each : series) {
    const char* color = kColors[each.color % kColors.size()];
    if (!each.is_sparse) out += dense_curve(frame, each, color, options.smoothing);
  }
  for (const PlotSeries& each : series) {
    const char* color = kColors[each.color % kColors.size()];
    if (each.is_sparse) out += sparse_curve(frame, each, color);
  }
  return out + legend(frame, series) + "</svg>\n";
}

std::string stacked_plots(const std::vector<std::string>& plots, const PlotOptions& options) {
  const size_t height = plots.size() * static_cast<size_t>(options.height);
  std::string out =
      join("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", options.width, "\" height=\"",
           height, "\" viewBox=\"0 0 ", options.width, " ", height, "\">\n");
  for (size_t i = 0; i < plots.size(); ++i) {
    out += join("<g transform=\"translate(0 ", i * static_cast<size_t>(options.height), ")\">\n",
                plots[i], "</g>\n");
  }
  return out + "</svg>\n";
}

}  // namespace weft::train
