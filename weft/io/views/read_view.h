#pragma once

#include <cstddef>
#include <span>

#include "weft/io/shard_info/shard_plan.h"
#include "weft/io/tensor_file.h"
#include "weft/io/views/view.h"

namespace weft::io {

/// A view and the place of its bytes, of which there are view.num_bytes().
struct PlacedView {
  View view;
  std::span<std::byte> destination;
};

/// Fills the destinations with the views' bytes, row-major, in the spans of for_each_span: a span
/// of one run is read straight to its place, the runs of others are copied out of the page cache.
/// Many bytes are read by two threads, each of which takes half of every view's rows. Throws
/// FormatError if a file has become shorter, IoError.
void read_views(const TensorFile& file, std::span<const PlacedView> views,
                ReadStats* stats = nullptr);
/// The same for one view.
void read_view(const TensorFile& file, const View& view, std::span<std::byte> destination,
               ReadStats* stats = nullptr);

/// One rank's shard of one parameter, and the place of its recipe.result.num_bytes() bytes.
struct PlacedShard {
  const ShardRecipe* recipe = nullptr;
  std::span<std::byte> destination;
};

/// Reads shards, row-major, and runs their eager steps. Throws as read_views and as the eager
/// functions.
void read_shards(const TensorFile& file, std::span<const PlacedShard> shards,
                 ReadStats* stats = nullptr);
/// The same for one shard.
void read_shard(const TensorFile& file, const ShardRecipe& recipe, std::span<std::byte> destination,
                ReadStats* stats = nullptr);

/// What reading a rank's part of a plan will cost, without reading.
ReadStats count_reads(const ShardPlan& plan, int64_t rank);

}  // namespace weft::io
