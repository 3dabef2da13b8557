#include "weft/train/metrics/human_text.h"

#include <cmath>
#include <cstdio>

#include "weft/core/error.h"

namespace weft::train {
namespace {

// Three digits: 1.23, 12.3, 123.
std::string three_digits(double number) {
  const double size = std::abs(number);
  return fixed_text(number, size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
}

std::string scaled_text(double number, const char* unit) {
  const char* const prefixes[] = {"", "k", "M", "G", "T", "P"};
  size_t i = 0;
  // 999.5 of one prefix would be written as 1000.
  for (; std::abs(number) >= 999.5 && i + 1 < std::size(prefixes); ++i) number /= 1000;
  const std::string suffix = core::join(prefixes[i], unit);
  const bool is_whole = i == 0 && number == std::floor(number);
  const std::string digits = is_whole ? fixed_text(number, 0) : three_digits(number);
  return suffix.empty() ? digits : digits + " " + suffix;
}

std::string two_digits(int64_t number) {
  const std::string text = std::to_string(number);
  return number < 10 ? "0" + text : text;
}

}  // namespace

std::string fixed_text(double number, int digits) {
  char text[400];
  std::snprintf(text, sizeof text, "%.*f", digits, number);
  return text;
}

std::string count_text(double number) { return scaled_text(number, ""); }

std::string bytes_text(double bytes) { return scaled_text(bytes, "B"); }

std::string duration_text(double seconds) {
  if (!std::isfinite(seconds) || seconds > 1e12) return "–";
  if (seconds == 0) return "0 s";
  if (seconds < 0.9995) return three_digits(seconds * 1000) + " ms";
  if (seconds < 9.995) return fixed_text(seconds, 2) + " s";
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 60) return core::join(whole, " s");
  if (whole < 3600) return core::join(whole / 60, " min ", two_digits(whole % 60), " s");
  const int64_t minutes = whole / 60;
  if (minutes < 1440) return core::join(minutes / 60, " h ", two_digits(minutes % 60), " min");
  const int64_t hours = minutes / 60;
  return core::join(hours / 24, " d ", two_digits(hours % 24), " h");
}

std::string grouped_text(int64_t number) {
  std::string digits = std::to_string(number);
  const size_t first = number < 0 ? 1 : 0;
  for (size_t at = digits.size(); at > first + 3;) digits.insert(at -= 3, ",");
  return digits;
}

}  // namespace weft::train
