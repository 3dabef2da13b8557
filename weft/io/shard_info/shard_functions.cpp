#include "weft/core/error.h"
#include "weft/io/matrix_rules.h"
#include "weft/io/shard_info/function_table.h"
#include "weft/shard/heads.h"

// One function and one row of the table for each way to cut a parameter for n ranks.

namespace weft::io {
namespace {

using core::check;
using core::ConfigError;
using core::ShapeError;
using shard::Range;

constexpr int64_t kMostPer = int64_t{1} << 31;

// The optional arguments `per` and `cover` of a cut, from argument `first` on.
struct Scale {
  int64_t per = 1;
  int64_t cover = 1;

  Scale(const FunctionCall& call, size_t first)
      : per(call.integer_or(first, 1)), cover(call.integer_or(first + 1, 1)) {
    check<ConfigError>(per >= 1 && cover >= 1 && per <= kMostPer && cover <= kMostPer,
                       "each index for ", per, " elements, cut at multiples of ", cover,
                       ", expected 1 to ", kMostPer);
    check<ConfigError>(cover % per == 0, "cut at multiples of ", cover,
                       " elements, expected a multiple of the ", per, " that each index is for");
  }
};

// Elements along a dim whose indices stand for `per` each.
int64_t num_elements(const View& input, int64_t dim, int64_t per) {
  check<ShapeError>(dim >= 0 && dim < input.num_dims(), "dim ", dim, " of ",
                    core::list_text(input.shape()), ", expected 0 to ", input.num_dims() - 1);
  int64_t elements = 0;
  check<ShapeError>(!__builtin_mul_overflow(input.size(dim), per, &elements), "dim ", dim, " of ",
                    core::list_text(input.shape()), " for ", per, " elements each is above 2^63");
  return elements;
}

// The indices that hold ranges of elements.
View take(const View& input, int64_t dim, const std::vector<Range>& elements, const Scale& scale) {
  std::vector<Range> indices = covering(elements, scale.cover);
  for (Range& range : indices) {
    check<ShapeError>(range.start % scale.per == 0 && range.length % scale.per == 0, "elements ",
                      range.start, " to ", range.end(), " cut an index that stands for ", scale.per,
                      "; cover a multiple of it");
    range = {range.start / scale.per, range.length / scale.per};
  }
  return input.ranges(dim, indices);
}

View shard_dim(const FunctionCall& call) {
  const int64_t dim = call.integer(0), unit = call.integer_or(1, 1);
  const int64_t fine_unit = call.integer_or(2, 0);
  const Scale scale(call, 3);
  if (fine_unit == 0 && scale.cover == 1) {
    return call.input().shard({dim, {}, unit}, call.num_ranks, call.rank);
  }
  const int64_t size = num_elements(call.input(), dim, scale.per);
  const bool is_fine = fine_unit > 0 && unit > 0 && size / unit < call.num_ranks;
  return take(call.input(), dim,
              shard::slices({dim, {}, is_fine ? fine_unit : unit}, size, call.num_ranks, call.rank,
                            core::join("dim ", dim)),
              scale);
}

View shard_segments(const FunctionCall& call) {
  return call.input().shard({call.integer(0), call.list(1), call.integer_or(2, 1)}, call.num_ranks,
                            call.rank);
}

View shard_segment_runs(const FunctionCall& call) {
  const int64_t dim = call.integer(0), runs = call.integer(2), fine_runs = call.integer_or(3, 0);
  const std::vector<int64_t>& segments = call.list(1);
  const Scale scale(call, 4);
  const int64_t size = num_elements(call.input(), dim, scale.per);
  // Checks the segments.
  shard::slices({dim, segments, 1}, size, 1, 0, core::join("dim ", dim));
  const bool is_fine = fine_runs > 0 && runs < call.num_ranks;
  const int64_t count = is_fine ? fine_runs : runs;
  const Range own = shard::part(count, call.num_ranks, call.rank);
  return take(call.input(), dim, segment_ranges(segments, count, own), scale);
}

Range scaled(const Range& range, int64_t start, int64_t head_dim) {
  return {start + range.start * head_dim, range.length * head_dim};
}

// Query heads, kv heads, or a fused [q | k | v] of both; kv heads are replicated beyond their
// number or as `split` says.
View cut_heads(const FunctionCall& call, shard::HeadSplit split) {
  const int64_t dim = call.integer(0);
  const int64_t heads = call.integer(1);
  const int64_t kv_heads = call.integer(2);
  const std::string& what = call.text(3);
  const bool is_fused = what == "qkv";
  check<ConfigError>(is_fused || what == "q" || what == "kv", "heads of ", core::quote(what),
                     ", expected 'q', 'kv' or 'qkv'");
  constexpr int64_t kMost = 1 << 20;
  check<ConfigError>(heads >= 1 && kv_heads >= 1 && heads <= kMost && kv_heads <= kMost, heads,
                     " heads and ", kv_heads, " kv heads, expected 1 to ", kMost);
  const View& input = call.input();
  const Scale scale(call, 4);
  const int64_t count = is_fused ? heads + 2 * kv_heads : (what == "q" ? heads : kv_heads);
  const int64_t size = num_elements(input, dim, scale.per);
  check<ShapeError>(size % count == 0, "dim ", dim, " of ", core::list_text(input.shape()),
                    " is no multiple of ", count, " heads; check the head counts");
  const shard::HeadShard mine =
      shard::shard_heads(heads, kv_heads, call.num_ranks, call.rank, split);
  const int64_t head_dim = size / count;
  std::vector<Range> ranges;
  if (what != "kv") ranges.push_back(scaled(mine.heads, 0, head_dim));
  if (what == "kv") ranges.push_back(scaled(mine.kv_heads, 0, head_dim));
  if (is_fused) {
    ranges.push_back(scaled(mine.kv_heads, heads * head_dim, head_dim));
    ranges.push_back(scaled(mine.kv_heads, (heads + kv_heads) * head_dim, head_dim));
  }
  return take(input, dim, ranges, scale);
}

View shard_heads(const FunctionCall& call) { return cut_heads(call, shard::HeadSplit::kKv); }

View shard_heads_evenly(const FunctionCall& call) {
  return cut_heads(call, shard::HeadSplit::kEven);
}

// Experts are dealt out whole.
View shard_expert(const FunctionCall& call) {
  const int64_t dim = call.integer(0), expert = call.integer(1), count = call.integer(2);
  check<ConfigError>(expert >= 0 && expert < count, "expert ", expert, " of ", count,
                     ", expected 0 to ", count - 1);
  const Range own = shard::NamedSplit{"experts", count, 1}.range(call.num_ranks, call.rank);
  const bool is_own = expert >= own.start && expert < own.end();
  return is_own ? call.input() : call.input().narrow(dim, 0, 0);
}

View shard_whole(const FunctionCall& call) { return call.input(); }

// Pieces that were cut before: one for each rank.
View shard_pieces(const FunctionCall& call) {
  check<ConfigError>(static_cast<int64_t>(call.inputs.size()) == call.num_ranks, call.inputs.size(),
                     " pieces for ", call.num_ranks,
                     " ranks; use as many ranks as pieces, or cut anew: cat, then shard");
  return call.inputs[static_cast<size_t>(call.rank)];
}

ViewFunction row(const char* name, FunctionKind kind, const char* signature, const char* summary,
                 std::function<View(const FunctionCall&)> apply, bool takes_many = false) {
  ViewFunction function;
  function.name = name;
  function.kind = kind;
  function.signature = signature;
  function.summary = summary;
  function.apply = std::move(apply);
  function.takes_many = takes_many;
  return function;
}

}  // namespace

std::vector<ViewFunction> shard_functions() {
  const auto shard = FunctionKind::kShard;
  return {
      row("shard", shard, "dim unit? fine_unit? per? cover?",
          "balanced along a dim, by whole units, or fine ones where those don't suffice",
          shard_dim),
      row("shard_segments", shard, "dim lengths[] unit?", "each part of a fused dim by itself",
          shard_segments),
      row(kSegmentRuns, shard, "dim lengths[] runs fine_runs? per? cover?",
          "each part of a fused dim by itself, all at the same of so many runs, or of fine ones "
          "where "
          "those don't suffice",
          shard_segment_runs),
      row(kHeads, shard, "dim heads kv_heads what: per? cover?",
          "whole heads of 'q', 'kv' or 'qkv'; kv heads are replicated beyond their number",
          shard_heads),
      row(kEvenHeads, shard, "dim heads kv_heads what: per? cover?",
          "the same, with kv heads replicated wherever whole ones would be dealt out less evenly",
          shard_heads_evenly),
      row("shard_expert", shard, "dim expert num_experts",
          "all of it on the rank that holds this expert, nothing elsewhere", shard_expert),
      row("shard_whole", shard, "", "all of it on every rank", shard_whole),
      row("shard_pieces", shard, "", "the rank's own of pieces that were cut before", shard_pieces,
          true),
  };
}

}  // namespace weft::io
