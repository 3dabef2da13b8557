#include "weft/io/views/read_view.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "weft/core/error.h"
#include "weft/io/views/span_plan.h"

namespace weft::io {
namespace {

// A span is read whole and its runs are copied out where that is faster than to ask for each run: a
// request costs some 150 ns, and a nanosecond moves 12 bytes from the page cache or 20 in memory.
bool needs_buffer(const ReadSpan& span) {
  constexpr uint64_t kRequest = 150 * 12;
  if (span.pieces.size() < 2) return false;
  uint64_t wanted = 0;
  for (const SpanPiece& piece : span.pieces) wanted += piece.num_bytes;
  return span.num_bytes + wanted * 12 / 20 < span.pieces.size() * kRequest + wanted;
}

// Counts what reading does, and what it would do.
class Counter {
 public:
  void add(const ReadSpan& span) {
    if (needs_buffer(span)) {
      read_bytes_ += span.num_bytes;
      buffer_bytes_ = std::max(buffer_bytes_, span.num_bytes);
      return;
    }
    for (const SpanPiece& piece : span.pieces) read_bytes_ += piece.num_bytes;
  }
  void note(const SpanCounts& counts, ReadStats* stats) const {
    if (stats == nullptr) return;
    stats->planned_bytes += counts.planned_bytes;
    stats->read_bytes += read_bytes_;
    stats->num_spans += counts.num_spans;
    stats->peak_buffer_bytes = std::max(stats->peak_buffer_bytes, buffer_bytes_);
  }

 private:
  uint64_t read_bytes_ = 0;
  uint64_t buffer_bytes_ = 0;
};

void read_by_buffer(const TensorFile& file, const ReadSpan& span, ReadBuffer& buffer,
                    std::span<std::byte> destination) {
  const std::span<std::byte> bytes = buffer.first(span.num_bytes);
  file.read_at(span.file, span.offset, bytes);
  for (const SpanPiece& piece : span.pieces) {
    std::memcpy(destination.data() + piece.destination, bytes.data() + piece.offset_in_span,
                piece.num_bytes);
  }
}

void read_pieces(const TensorFile& file, const ReadSpan& span, std::span<std::byte> destination) {
  if (span.pieces.size() > 1) file.will_need(span.file, span.offset, span.num_bytes);
  for (const SpanPiece& piece : span.pieces) {
    file.read_at(span.file, span.offset + piece.offset_in_span,
                 destination.subspan(piece.destination, piece.num_bytes));
  }
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

std::span<std::byte> ReadBuffer::first(uint64_t size) {
  if (size_ >= size) return {bytes_, size};
  release();
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  core::check<core::IoError>(memory != MAP_FAILED, "io.ReadBuffer: no memory for ", size,
                             " bytes; use more ranks, or a machine with more memory");
  bytes_ = static_cast<std::byte*>(memory);
  size_ = size;
  return {bytes_, size};
}

void ReadBuffer::release() {
  if (bytes_ != nullptr) ::munmap(bytes_, size_);
  bytes_ = nullptr;
  size_ = 0;
}

void read_view(const TensorFile& file, const View& view, std::span<std::byte> destination,
               ReadStats* stats, ReadBuffer* buffer) {
  core::check<core::InternalError>(view.num_bytes() == destination.size(),
                                   "io.read_view: ", view.num_bytes(),
                                   " bytes for a destination of ", destination.size());
  ReadBuffer own;
  Counter counter;
  const SpanCounts counts =
      for_each_span(std::span(&view, 1), SpanOptions(), [&](const ReadSpan& span) {
        counter.add(span);
        if (needs_buffer(span)) {
          read_by_buffer(file, span, buffer == nullptr ? own : *buffer, destination);
        } else {
          read_pieces(file, span, destination);
        }
      });
  counter.note(counts, stats);
}

void read_shard(const TensorFile& file, const ShardRecipe& recipe, std::span<std::byte> destination,
                ReadStats* stats, ReadBuffer* buffer) {
  if (recipe.eager_steps.empty()) {
    read_view(file, recipe.result, destination, stats, buffer);
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
    Counter counter;
    const SpanCounts counts =
        for_each_span(std::span(&param.of(rank).file_view(), 1), SpanOptions(),
                      [&](const ReadSpan& span) { counter.add(span); });
    counter.note(counts, &stats);
    stats.peak_host_bytes = std::max(stats.peak_host_bytes,
                                     stats.peak_buffer_bytes + param.of(rank).result.num_bytes());
  }
  return stats;
}

}  // namespace weft::io
