#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "weft/io/tensor_file.h"
#include "weft/io/views/view.h"

namespace weft::io {

/// Limits of a reader.
struct SpanOptions {
  /// Runs closer than this are one span.
  uint64_t max_gap = 64 * 1024;
  /// A span, which is mapped in one piece, is at most this long unless it is a single run.
  uint64_t max_span = uint64_t{8} << 20;
  /// From here a run is a span of its own, to be read straight to its place.
  uint64_t long_run = uint64_t{1} << 20;
  /// Runs that are sorted at a time: memory is 40 bytes for each.
  size_t max_runs_sorted = size_t{1} << 16;
  /// Runs at a time that come in order, for whose lists new memory would cost more than they do.
  size_t max_runs_in_order = 1024;
};

/// Bytes of a span that go to one place.
struct SpanPiece {
  uint64_t offset_in_span = 0;
  uint64_t num_bytes = 0;
  /// Which of the views, and where in its row-major bytes.
  size_t view = 0;
  uint64_t destination = 0;
};

/// Bytes that lie close together. A single piece can be read straight to its place.
struct ReadSpan {
  size_t file = 0;
  uint64_t offset = 0;
  uint64_t num_bytes = 0;
  std::span<const SpanPiece> pieces;
};

/// What for_each_span did.
struct SpanCounts {
  /// Sum of the runs, and of the spans, which have gaps in them and hold repeated bytes once.
  uint64_t planned_bytes = 0;
  uint64_t span_bytes = 0;
  uint64_t num_runs = 0;
  uint64_t num_spans = 0;
};

/// Merges the runs of all views into spans and calls `visit` with each, in the order of files and
/// offsets as far as the limits of runs at a time reach. Every byte of every view is in just one
/// piece. Throws as View::check_units, before the first call.
SpanCounts for_each_span(std::span<const View> views, const SpanOptions& options,
                         const std::function<void(const ReadSpan&)>& visit);

}  // namespace weft::io
