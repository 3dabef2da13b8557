#include "weft/io/views/read_view.h"

#include <algorithm>
#include <cstring>
#include <future>
#include <utility>
#include <vector>

#include "weft/core/error.h"
#include "weft/core/files/mapped_window.h"
#include "weft/io/views/span_plan.h"

namespace weft::io {
namespace {

// From here on two threads read half of the rows each: clearing new memory takes about as long as
// reading into it.
constexpr uint64_t kWorthTwoThreads = uint64_t{4} << 20;

// Reads a span that is one run. The system is told of each part of it, so that it reads no further
// than that.
void read_run(const TensorFile& file, const ReadSpan& span, std::span<std::byte> destination) {
  constexpr uint64_t kPart = uint64_t{8} << 20;
  for (uint64_t start = 0; start < span.num_bytes; start += kPart) {
    const uint64_t size = std::min(kPart, span.num_bytes - start);
    file.will_need(span.file, span.offset + start, size);
    file.read_at(span.file, span.offset + start, destination.subspan(start, size));
  }
}

// Copies a span's runs to their places, short ones out of the page cache.
void read_span(const TensorFile& file, const ReadSpan& span, std::span<std::byte> destination) {
  if (span.pieces.size() == 1) {
    const SpanPiece& piece = span.pieces[0];
    read_run(file, span, destination.subspan(piece.destination, piece.num_bytes));
    return;
  }
  std::vector<core::MappedWindow::Copy> copies;
  copies.reserve(span.pieces.size());
  for (const SpanPiece& piece : span.pieces) {
    copies.push_back(
        {piece.offset_in_span, piece.num_bytes, destination.data() + piece.destination});
  }
  file.copy_from(span.file, span.offset, span.num_bytes, copies);
}

void add(ReadStats& stats, const SpanCounts& counts) {
  stats.planned_bytes += counts.planned_bytes;
  stats.read_bytes += counts.planned_bytes;
  stats.num_spans += counts.num_spans;
}

void add(ReadStats& stats, const ReadStats& other) {
  stats.planned_bytes += other.planned_bytes;
  stats.read_bytes += other.read_bytes;
  stats.num_spans += other.num_spans;
}

ReadStats read_spans(const TensorFile& file, std::span<const PlacedView> views) {
  ReadStats stats;
  for (const auto& each : views) {
    add(stats, for_each_span(std::span(&each.view, 1), SpanOptions(), [&](const ReadSpan& span) {
          read_span(file, span, each.destination);
        }));
  }
  return stats;
}

// Half of the rows of each view, and the others.
std::pair<std::vector<PlacedView>, std::vector<PlacedView>> halves(
    std::span<const PlacedView> views) {
  std::vector<PlacedView> top, rest;
  for (const auto& [view, destination] : views) {
    const int64_t rows = view.num_dims() < 2 ? 1 : view.size(0);
    if (rows < 2) {
      top.push_back({view, destination});
      continue;
    }
    const View first = view.narrow(0, 0, rows / 2);
    top.push_back({first, destination.first(first.num_bytes())});
    rest.push_back(
        {view.narrow(0, rows / 2, rows - rows / 2), destination.subspan(first.num_bytes())});
  }
  return {top, rest};
}

void gather(std::span<const std::byte> memory, const View& view, std::span<std::byte> destination) {
  uint64_t position = 0;
  view.for_each_run([&](const ByteRun& run) {
    std::memcpy(destination.data() + position, memory.data() + run.offset, run.num_bytes);
    position += run.num_bytes;
  });
}

// A user's function may throw anything.
void run_function(const EagerStep& step, std::span<const std::byte> input,
                  std::span<std::byte> output) {
  try {
    step.function->run(input, step.input.type(), step.arguments, output);
  } catch (const core::Error&) {
    throw;
  } catch (const std::exception& error) {
    core::fail<core::ConfigError>("io.read_shard: step ", core::quote(step.name),
                                  ": the function failed: ", core::quote(error.what()));
  }
}

}  // namespace

void read_views(const TensorFile& file, std::span<const PlacedView> views, ReadStats* stats) {
  uint64_t bytes = 0;
  for (const auto& [view, destination] : views) {
    core::check<core::InternalError>(view.num_bytes() == destination.size(),
                                     "io.read_view: ", view.num_bytes(),
                                     " bytes for a destination of ", destination.size());
    bytes += destination.size();
  }
  ReadStats unread;
  ReadStats& sum = stats == nullptr ? unread : *stats;
  if (bytes < kWorthTwoThreads) {
    add(sum, read_spans(file, views));
    return;
  }
  const auto [top, rest] = halves(views);
  // Where the system allows no further thread, this one reads both halves.
  auto other = std::async(std::launch::async | std::launch::deferred,
                          [&, &rest = rest] { return read_spans(file, rest); });
  // The future waits for the thread, also where this throws.
  add(sum, read_spans(file, top));
  add(sum, other.get());
}

void read_view(const TensorFile& file, const View& view, std::span<std::byte> destination,
               ReadStats* stats) {
  const PlacedView placed{view, destination};
  read_views(file, std::span(&placed, 1), stats);
}

void read_shards(const TensorFile& file, std::span<const PlacedShard> shards, ReadStats* stats) {
  std::vector<PlacedView> views;
  for (const auto& [recipe, destination] : shards) {
    if (recipe->eager_steps.empty()) {
      views.push_back({recipe->result, destination});
    } else {
      read_shard(file, *recipe, destination, stats);
    }
  }
  read_views(file, views, stats);
}

void read_shard(const TensorFile& file, const ShardRecipe& recipe, std::span<std::byte> destination,
                ReadStats* stats) {
  if (recipe.eager_steps.empty()) {
    read_view(file, recipe.result, destination, stats);
    return;
  }
  std::vector<std::byte> bytes(recipe.file_view().num_bytes());
  read_view(file, recipe.file_view(), bytes, stats);
  for (size_t i = 0; i < recipe.eager_steps.size(); ++i) {
    const EagerStep& step = recipe.eager_steps[i];
    std::vector<std::byte> output(step.output_bytes());
    run_function(step, bytes, output);
    const bool is_last = i + 1 == recipe.eager_steps.size();
    const View& next = is_last ? recipe.result : recipe.eager_steps[i + 1].input;
    if (!is_last) bytes.resize(next.num_bytes());
    gather(output, next, is_last ? destination : std::span(bytes));
  }
}

ReadStats count_reads(const ShardPlan& plan, int64_t rank) {
  ReadStats stats;
  for (const PlannedParam& param : plan.params()) {
    const View& view = param.of(rank).file_view();
    add(stats, for_each_span(std::span(&view, 1), SpanOptions(), [](const ReadSpan&) {}));
    stats.peak_host_bytes = std::max(stats.peak_host_bytes, param.of(rank).result.num_bytes());
  }
  return stats;
}

}  // namespace weft::io
