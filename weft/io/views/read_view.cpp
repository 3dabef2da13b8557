#include "weft/io/views/read_view.h"

#include <algorithm>
#include <cstring>
#include <future>
#include <vector>

#include "weft/core/error.h"
#include "weft/core/mapped_window.h"
#include "weft/io/views/span_plan.h"

namespace weft::io {
namespace {

// From here on two threads read half of the rows each: clearing new memory takes about as long as
// reading into it.
constexpr uint64_t kWorthTwoThreads = uint64_t{8} << 20;

// Copies a span's runs to their places, short ones out of the page cache.
void read_span(const TensorFile& file, const ReadSpan& span, std::span<std::byte> destination) {
  if (span.pieces.size() == 1) {
    const SpanPiece& piece = span.pieces[0];
    file.read_at(span.file, span.offset, destination.subspan(piece.destination, piece.num_bytes));
    return;
  }
  file.will_need(span.file, span.offset, span.num_bytes);
  std::vector<core::MappedWindow::Copy> copies;
  copies.reserve(span.pieces.size());
  for (const SpanPiece& piece : span.pieces) {
    copies.push_back(
        {piece.offset_in_span, piece.num_bytes, destination.data() + piece.destination});
  }
  file.copy_from(span.file, span.offset, span.num_bytes, copies);
}

void note(const SpanCounts& counts, ReadStats* stats) {
  if (stats == nullptr) return;
  stats->planned_bytes += counts.planned_bytes;
  stats->read_bytes += counts.planned_bytes;
  stats->num_spans += counts.num_spans;
}

SpanCounts read_spans(const TensorFile& file, const View& view, std::span<std::byte> destination) {
  return for_each_span(std::span(&view, 1), SpanOptions(),
                       [&](const ReadSpan& span) { read_span(file, span, destination); });
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

void read_view(const TensorFile& file, const View& view, std::span<std::byte> destination,
               ReadStats* stats) {
  core::check<core::InternalError>(view.num_bytes() == destination.size(),
                                   "io.read_view: ", view.num_bytes(),
                                   " bytes for a destination of ", destination.size());
  const int64_t rows = view.num_dims() < 2 ? 1 : view.size(0);
  if (rows < 2 || destination.size() < kWorthTwoThreads) {
    note(read_spans(file, view, destination), stats);
    return;
  }
  const View top = view.narrow(0, 0, rows / 2), rest = view.narrow(0, rows / 2, rows - rows / 2);
  auto other = std::async(std::launch::async, [&] {
    return read_spans(file, rest, destination.subspan(top.num_bytes()));
  });
  // The future waits for the thread, also where this throws.
  const SpanCounts counts = read_spans(file, top, destination.first(top.num_bytes()));
  note(counts, stats);
  note(other.get(), stats);
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
    note(for_each_span(std::span(&view, 1), SpanOptions(), [](const ReadSpan&) {}), &stats);
    stats.peak_host_bytes = std::max(stats.peak_host_bytes, param.of(rank).result.num_bytes());
  }
  return stats;
}

}  // namespace weft::io
