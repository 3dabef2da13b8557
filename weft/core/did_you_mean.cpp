#include "weft/core/did_you_mean.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace weft::core {
namespace {

size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  std::vector<size_t> above;  // the row before the one before
  for (size_t i = 1; i <= a.size(); ++i) {
    const std::vector<size_t> before = row;
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
      const bool is_swap = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (is_swap) row[j] = std::min(row[j], above[j - 2] + 1);
    }
    above = before;
  }
  return row.back();
}

}  // namespace

std::string did_you_mean(const std::string& word, const std::vector<std::string>& names) {
  const auto nearest =
      std::min_element(names.begin(), names.end(), [&](const std::string& a, const std::string& b) {
        return edit_distance(word, a) < edit_distance(word, b);
      });
  if (nearest == names.end()) return "";
  const size_t distance = edit_distance(word, *nearest);
  // Every two short words are near each other.
  if (distance > 2 || 2 * distance > std::max(word.size(), nearest->size())) return "";
  return " (did you mean '" + *nearest + "'?)";
}

}  // namespace weft::core
