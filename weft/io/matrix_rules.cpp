#include "weft/io/matrix_rules.h"

#include <numeric>

#include "weft/core/error.h"
#include "weft/io/matrices/column_order.h"

namespace weft::io {

using core::check;
using core::ConfigError;
using shard::Range;

namespace {

// Leaves out trailing arguments that say nothing.
void add_scale(ShardStep& step, int64_t per, int64_t cover) {
  if (per == 1 && cover == 1) return;
  step.arguments.emplace_back(per);
  if (cover > 1) step.arguments.emplace_back(cover);
}

shard::Layout expert_layout(const DimSplit& split, int64_t n, const std::string& where) {
  const shard::NamedSplit experts{core::join(where, ": experts"), split.num_experts, 1};
  shard::Layout layout{0, split.size, {}};
  for (int64_t rank = 0; rank < n; ++rank) {
    const Range own = experts.range(n, rank);
    const bool is_own = split.expert >= own.start && split.expert < own.end();
    layout.ranges.push_back(is_own ? std::vector<Range>{{0, split.size}} : std::vector<Range>{});
  }
  return layout;
}

shard::Layout segments_layout(const DimSplit& split, int64_t n, const std::string& where) {
  const bool is_fine = split.num_fine_runs > 0 && split.num_runs < n;
  const shard::NamedSplit runs{where, is_fine ? split.num_fine_runs : split.num_runs, 1};
  shard::Layout layout{0, split.size, {}};
  for (int64_t rank = 0; rank < n; ++rank) {
    layout.ranges.push_back(segment_ranges(split.segments, runs.size, runs.range(n, rank)));
  }
  return layout;
}

// The columns in the model's order, with those that are stored together with them, then the cut.
void add_ordered_columns(const std::vector<Range>& columns, const MatrixFormat& format,
                         const MatrixPart& part, const DimSplit& split, ParamRule& rule) {
  const std::string where =
      core::join("parameter ", core::quote(rule.name), " (", format.text, ")");
  check<ConfigError>(
      part.per_in == 1, where,
      ": its columns are stored together and can't be reordered; use another format");
  std::vector<int64_t> starts, lengths;
  for (const Range& run : stored_runs(columns, format.in_unit, where)) {
    starts.push_back(run.start);
    lengths.push_back(run.length);
  }
  const int64_t times = lengths.front() / columns.front().length;
  DimSplit stored = split;
  stored.size *= times;
  for (int64_t& segment : stored.segments) segment *= times;
  rule.steps.push_back({"ranges", {part.in_dim, std::move(starts), std::move(lengths)}, {}, {}});
  rule.steps.push_back(stored.step(part.in_dim, 1, 1));
}

}  // namespace

std::vector<Range> segment_ranges(const std::vector<int64_t>& segments, int64_t num_runs,
                                  const Range& runs) {
  std::vector<Range> ranges;
  int64_t start = 0;
  for (const int64_t length : segments) {
    check<core::ShapeError>(num_runs >= 1 && length % num_runs == 0, "a segment of ", length,
                            " elements in ", num_runs, " runs, expected a multiple");
    const int64_t each = length / num_runs;
    ranges.push_back({start + runs.start * each, runs.length * each});
    start += length;
  }
  return ranges;
}

DimSplit DimSplit::at_multiples_of(int64_t run) const {
  DimSplit split = *this;
  if (kind != Kind::kEven || size % run != 0 || unit % run == 0) return split;
  split.unit = std::lcm(unit, run);
  if (fine_unit == 0) split.fine_unit = unit;
  return split;
}

shard::Layout DimSplit::layout(int64_t n, const std::string& where) const {
  if (kind == Kind::kEven) {
    const bool is_fine = fine_unit > 0 && size / unit < n;
    return shard::make_layout({0, {}, is_fine ? fine_unit : unit}, size, n, where);
  }
  if (kind == Kind::kExpert) return expert_layout(*this, n, where);
  if (kind == Kind::kSegments) return segments_layout(*this, n, where);
  const int64_t heads = kind == Kind::kQueryHeads ? num_heads : num_kv_heads;
  auto layouts = shard::head_layouts(num_heads, num_kv_heads, size / heads, n, head_split);
  return kind == Kind::kQueryHeads ? std::move(layouts.query) : std::move(layouts.kv);
}

ShardStep DimSplit::step(int64_t dim, int64_t per, int64_t cover) const {
  ShardStep step;
  step.arguments.emplace_back(dim);
  if (kind == Kind::kExpert) {
    step.function = "shard_expert";
    step.arguments.emplace_back(expert);
    step.arguments.emplace_back(num_experts);
    return step;
  }
  if (kind == Kind::kSegments) {
    step.function = kSegmentRuns;
    step.arguments.emplace_back(segments);
    step.arguments.emplace_back(num_runs);
    const bool is_scaled = per > 1 || cover > 1;
    if (num_fine_runs > 0 || is_scaled) step.arguments.emplace_back(num_fine_runs);
  } else if (kind == Kind::kEven) {
    const bool is_scaled = per > 1 || cover > 1;
    step.function = "shard";
    if (unit > 1 || fine_unit > 0 || is_scaled) step.arguments.emplace_back(unit);
    if (fine_unit > 0 || is_scaled) step.arguments.emplace_back(fine_unit);
  } else {
    step.function = head_split == shard::HeadSplit::kEven ? kEvenHeads : kHeads;
    step.arguments.emplace_back(num_heads);
    step.arguments.emplace_back(num_kv_heads);
    step.arguments.emplace_back(std::string(kind == Kind::kQueryHeads ? "q" : "kv"));
  }
  add_scale(step, per, cover);
  return step;
}

std::vector<ParamRule> matrix_rules(const std::string& base, const MatrixFormat& format,
                                    const MatrixOrder& order, Cut cut, const DimSplit* split,
                                    int64_t stack_index) {
  std::vector<ParamRule> rules;
  for (const MatrixPart& part : format.parts) {
    ParamRule& rule = rules.emplace_back();
    rule.name = base + part.suffix;
    if (part.tensor != rule.name) rule.from.push_back(part.tensor);
    if (part.bits > 0) rule.steps.push_back({"as_bits", {part.bits}, {}, {}});
    if (part.is_grouped) {
      const int64_t first = stack_index >= 0 ? 2 : 1;
      rule.steps.push_back({"flatten", {first, first + 1}, {}, {}});
    }
    if (stack_index >= 0) rule.steps.push_back({"select", {int64_t{0}, stack_index}, {}, {}});
    if (!part.seen_as.empty()) rule.steps.push_back({"reshape", {part.seen_as}, {}, {}});
    if (part.is_transposed) rule.steps.push_back({"transpose", {int64_t{0}, int64_t{1}}, {}, {}});
    if (part.out_dim >= 0) {
      check<ConfigError>(
          order.rows.empty() || (part.out_dim == 0 && part.per_out == 1), "parameter ",
          core::quote(rule.name), " (", format.text,
          "): its rows are stored together and can't be reordered; use another format");
      rule.steps.insert(rule.steps.end(), order.rows.begin(), order.rows.end());
    }
    if (cut == Cut::kRows && part.out_dim >= 0) {
      rule.steps.push_back(split->step(part.out_dim, part.per_out, format.out_unit));
    } else if (cut == Cut::kColumns && part.shared_in == 0 && order.columns.empty()) {
      rule.steps.push_back(split->step(part.in_dim, part.per_in, format.in_unit));
    } else if (cut == Cut::kColumns && part.shared_in == 0) {
      add_ordered_columns(order.columns, format, part, *split, rule);
    }
  }
  return rules;
}

std::vector<Range> covering(const std::vector<Range>& ranges, int64_t cover) {
  std::vector<Range> covers;
  for (const Range& range : ranges) {
    const int64_t start = range.start / cover * cover;
    const int64_t end = (range.end() + cover - 1) / cover * cover;
    covers.push_back({start, end - start});
  }
  return covers;
}

std::vector<Range> within(const std::vector<Range>& ranges, int64_t cover) {
  const std::vector<Range> covers = covering(ranges, cover);
  std::vector<Range> inner;
  int64_t start = 0;
  for (size_t i = 0; i < ranges.size(); ++i) {
    inner.push_back({start + ranges[i].start - covers[i].start, ranges[i].length});
    start += covers[i].length;
  }
  return inner;
}

}  // namespace weft::io
