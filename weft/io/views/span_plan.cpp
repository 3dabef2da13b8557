#include "weft/io/views/span_plan.h"

#include <algorithm>
#include <tuple>

namespace weft::io {
namespace {

struct PlacedRun {
  ByteRun run;
  size_t view = 0;
  uint64_t destination = 0;

  uint64_t end() const { return run.offset + run.num_bytes; }
};

auto order_of(const PlacedRun& run) {
  return std::tie(run.run.file, run.run.offset, run.view, run.destination);
}

// Collects runs, and turns them into spans whenever there are enough.
class SpanMaker {
 public:
  SpanMaker(const SpanOptions& options, const std::function<void(const ReadSpan&)>& visit)
      : options_(options), visit_(visit) {}

  void add(const PlacedRun& run) {
    is_sorted_ = is_sorted_ && (runs_.empty() || !(order_of(run) < order_of(runs_.back())));
    runs_.push_back(run);
    if (runs_.size() >= (is_sorted_ ? options_.max_runs_in_order : options_.max_runs_sorted)) {
      flush();
    }
  }

  void flush() {
    if (!is_sorted_) {
      std::sort(runs_.begin(), runs_.end(),
                [](const PlacedRun& a, const PlacedRun& b) { return order_of(a) < order_of(b); });
    }
    for (size_t first = 0; first < runs_.size();) first = make_span(first);
    runs_.clear();
    is_sorted_ = true;
  }

  const SpanCounts& counts() const { return counts_; }

 private:
  bool is_long(const PlacedRun& run) const { return run.run.num_bytes >= options_.long_run; }

  // Returns the first run after the span.
  size_t make_span(size_t first) {
    const PlacedRun& head = runs_[first];
    uint64_t end = head.end();
    size_t last = first + 1;
    for (; !is_long(head) && last < runs_.size(); ++last) {
      const PlacedRun& next = runs_[last];
      const uint64_t next_end = std::max(end, next.end());
      const bool is_near = next.run.file == head.run.file && !is_long(next) &&
                           (next.run.offset <= end || next.run.offset - end <= options_.max_gap);
      if (!is_near || next_end - head.run.offset > options_.max_span) break;
      end = next_end;
    }
    pieces_.clear();
    for (size_t i = first; i < last; ++i) {
      const PlacedRun& run = runs_[i];
      pieces_.push_back(
          {run.run.offset - head.run.offset, run.run.num_bytes, run.view, run.destination});
      counts_.planned_bytes += run.run.num_bytes;
    }
    const ReadSpan span{head.run.file, head.run.offset, end - head.run.offset, pieces_};
    counts_.span_bytes += span.num_bytes;
    counts_.num_runs += last - first;
    ++counts_.num_spans;
    visit_(span);
    return last;
  }

  const SpanOptions& options_;
  const std::function<void(const ReadSpan&)>& visit_;
  std::vector<PlacedRun> runs_;
  // As views of a file's own order come.
  bool is_sorted_ = true;
  std::vector<SpanPiece> pieces_;
  SpanCounts counts_;
};

}  // namespace

SpanCounts for_each_span(std::span<const View> views, const SpanOptions& options,
                         const std::function<void(const ReadSpan&)>& visit) {
  std::vector<std::tuple<size_t, uint64_t, size_t>> order;
  for (size_t i = 0; i < views.size(); ++i) {
    views[i].check_units();
    const ByteRun first = views[i].first_byte();
    order.emplace_back(first.file, first.offset, i);
  }
  std::sort(order.begin(), order.end());
  SpanMaker maker(options, visit);
  for (const auto& [file, offset, index] : order) {
    uint64_t destination = 0;
    const size_t view = index;
    views[index].for_each_run([&](const ByteRun& run) {
      maker.add({run, view, destination});
      destination += run.num_bytes;
    });
  }
  maker.flush();
  return maker.counts();
}

}  // namespace weft::io
