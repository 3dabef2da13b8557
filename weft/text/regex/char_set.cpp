#include "weft/text/regex/char_set.h"

#include <algorithm>

#include "weft/text/unicode/unicode.h"

namespace weft::text {

void CharSet::add(char32_t first, char32_t last) { ranges_.push_back({first, last}); }

void CharSet::add(const CharSet& other) {
  ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
}

std::vector<CharSet::Range> CharSet::sorted() const {
  std::vector<Range> parts = ranges_;
  std::sort(parts.begin(), parts.end(),
            [](const Range& a, const Range& b) { return a.first < b.first; });
  std::vector<Range> merged;
  for (const Range& part : parts) {
    if (!merged.empty() && part.first <= merged.back().last + 1) {
      merged.back().last = std::max(merged.back().last, part.last);
    } else {
      merged.push_back(part);
    }
  }
  return merged;
}

CharSet CharSet::negated() const {
  CharSet out;
  char32_t next = 0;
  for (const Range& range : sorted()) {
    if (range.first > next) out.add(next, range.first - 1);
    next = range.last + 1;
  }
  if (next <= kLast) out.add(next, kLast);
  return out;
}

CharSet CharSet::intersected(const CharSet& other) const {
  CharSet outside = negated();
  outside.add(other.negated());
  return outside.negated();
}

void CharSet::finish() {
  ranges_ = sorted();
  ascii_ = {};
  for (const Range& range : ranges_) {
    for (char32_t code = range.first; code <= range.last && code < 128; ++code) {
      ascii_[code >> 6] |= uint64_t{1} << (code & 63);
    }
  }
}

bool CharSet::contains_wide(char32_t code) const {
  const auto it =
      std::upper_bound(ranges_.begin(), ranges_.end(), code,
                       [](char32_t value, const Range& range) { return value < range.first; });
  return it != ranges_.begin() && code <= std::prev(it)->last;
}

namespace {

// Adds the runs of a generated table whose value is wanted.
template <class Table, class Wanted>
void add_runs(CharSet& set, const Table& table, Wanted wanted) {
  for (size_t i = 0; i < table.size(); ++i) {
    const char32_t end = i + 1 < table.size() ? table[i + 1].first : CharSet::kLast + 1;
    if (wanted(table[i])) set.add(table[i].first, end - 1);
  }
}

}  // namespace

CharSet CharSet::of_class(uint16_t mask) {
  CharSet set;
  add_runs(set, kClassRanges, [&](const ClassRange& run) { return (run.bits & mask) != 0; });
  return set;
}

CharSet CharSet::of_property(std::string_view name) {
  CharSet set;
  if (name == "Han") {
    for (const CharRange& range : kHanRanges) set.add(range.first, range.last);
  }
  if (name.empty() || name.size() > 2) return set;
  add_runs(set, kCategoryRanges, [&](const CategoryRange& run) {
    return run.category != 0 && kCategoryNames[run.category - 1].starts_with(name);
  });
  return set;
}

}  // namespace weft::text
