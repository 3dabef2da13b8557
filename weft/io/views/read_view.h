#pragma once

#include <cstddef>
#include <span>

#include "weft/io/tensor_file.h"
#include "weft/io/views/shard_plan.h"
#include "weft/io/views/view.h"

namespace weft::io {

/// Fills `destination` with the view's bytes, row-major, in the spans of for_each_span: a span of
/// one run is read straight to its place, the runs of others are copied out of the page cache.
/// Large views are read by two threads. destination.size() is view.num_bytes(). Throws FormatError
/// if a file has become shorter, IoError.
void read_view(const TensorFile& file, const View& view, std::span<std::byte> destination,
               ReadStats* stats = nullptr);

/// Reads one rank's shard of one parameter, row-major, and runs its eager steps.
/// destination.size() is recipe.result.num_bytes(). Throws as read_view and as the eager functions.
void read_shard(const TensorFile& file, const ShardRecipe& recipe, std::span<std::byte> destination,
                ReadStats* stats = nullptr);

/// What reading a rank's part of a plan will cost, without reading.
ReadStats count_reads(const ShardPlan& plan, int64_t rank);

}  // namespace weft::io
