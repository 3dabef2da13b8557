#include "weft/io/matrices/column_order.h"

#include <algorithm>

#include "weft/core/error.h"

namespace weft::io {

using shard::Range;

std::vector<Range> stored_runs(const std::vector<Range>& runs, int64_t in_unit,
                               const std::string& where) {
  std::vector<Range> stored;
  for (const Range& run : runs) {
    const bool is_whole = run.start % in_unit == 0 && run.length % in_unit == 0;
    const int64_t start = run.start / in_unit * in_unit;
    core::check<core::ConfigError>(is_whole || run.end() <= start + in_unit, where, ": columns ",
                                   run.start, " to ", run.end(), " stand in another order, but ",
                                   in_unit,
                                   " are stored together; use a format with smaller blocks");
    stored.push_back(is_whole ? run : Range{start, in_unit});
  }
  return stored;
}

std::vector<Range> within_stored_runs(const std::vector<Range>& wanted,
                                      const std::vector<Range>& runs, int64_t in_unit) {
  const std::vector<Range> stored = stored_runs(runs, in_unit, "columns");
  if (stored == runs) return wanted;
  std::vector<Range> places;
  for (const Range& range : wanted) {
    int64_t first = 0, place = 0;
    for (size_t i = 0; i < runs.size(); ++i) {
      const bool is_wanted = first >= range.start && first + runs[i].length <= range.end();
      if (is_wanted) places.push_back({place + runs[i].start - stored[i].start, runs[i].length});
      first += runs[i].length;
      place += stored[i].length;
    }
  }
  return places;
}

}  // namespace weft::io
