#include "weft/io/views/read_view.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "weft/core/error.h"
#include "weft/io/views/span_plan.h"

namespace weft::io {
namespace {

// Bytes that can be read without being written first.
class Buffer {
 public:
  std::span<std::byte> first(uint64_t size) {
    if (size_ < size) {
      bytes_.reset();
      bytes_ = std::make_unique_for_overwrite<std::byte[]>(size);
      size_ = size;
    }
    return {bytes_.get(), size};
  }
  uint64_t size() const { return size_; }

 private:
  std::unique_ptr<std::byte[]> bytes_;
  uint64_t size_ = 0;
};

bool needs_buffer(const ReadSpan& span) { return span.pieces.size() > 1; }

void note(ReadStats* stats, const SpanCounts& counts, uint64_t buffer_bytes) {
  if (stats == nullptr) return;
  stats->planned_bytes += counts.planned_bytes;
  stats->read_bytes += counts.span_bytes;
  stats->num_spans += counts.num_spans;
  stats->peak_buffer_bytes = std::max(stats->peak_buffer_bytes, buffer_bytes);
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
  Buffer buffer;
  const SpanCounts counts =
      for_each_span(std::span(&view, 1), SpanOptions(), [&](const ReadSpan& span) {
        if (!needs_buffer(span)) {
          const SpanPiece& piece = span.pieces[0];
          file.read_at(span.file, span.offset,
                       destination.subspan(piece.destination, piece.num_bytes));
          return;
        }
        const std::span<std::byte> bytes = buffer.first(span.num_bytes);
        file.read_at(span.file, span.offset, bytes);
        for (const SpanPiece& piece : span.pieces) {
          std::memcpy(destination.data() + piece.destination, bytes.data() + piece.offset_in_span,
                      piece.num_bytes);
        }
      });
  note(stats, counts, buffer.size());
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
    uint64_t buffer_bytes = 0;
    const SpanCounts counts = for_each_span(
        std::span(&param.of(rank).file_view(), 1), SpanOptions(), [&](const ReadSpan& span) {
          if (needs_buffer(span)) buffer_bytes = std::max(buffer_bytes, span.num_bytes);
        });
    note(&stats, counts, buffer_bytes);
    stats.peak_host_bytes = std::max(stats.peak_host_bytes,
                                     stats.peak_buffer_bytes + param.of(rank).result.num_bytes());
  }
  return stats;
}

}  // namespace weft::io
