#pragma once

#include <cstddef>
#include <span>

#include "weft/io/tensor_file.h"
#include "weft/io/views/shard_plan.h"
#include "weft/io/views/view.h"

namespace weft::io {

/// Memory for a while, straight from the system: so that it doesn't lie between tensors that stay.
class ReadBuffer {
 public:
  ReadBuffer() = default;
  ReadBuffer(const ReadBuffer&) = delete;
  ReadBuffer& operator=(const ReadBuffer&) = delete;
  ~ReadBuffer() { release(); }

  /// The first `size` bytes, whose values are any. Throws IoError if there is no memory.
  std::span<std::byte> first(uint64_t size);
  uint64_t size() const { return size_; }

 private:
  void release();

  std::byte* bytes_ = nullptr;
  uint64_t size_ = 0;
};

/// Fills `destination` with the view's bytes, row-major, in the spans of for_each_span: short runs
/// by way of a buffer of at most a span, the others straight to their place. destination.size() is
/// view.num_bytes(). `buffer` may serve several calls. Throws FormatError if a file has become
/// shorter, IoError.
void read_view(const TensorFile& file, const View& view, std::span<std::byte> destination,
               ReadStats* stats = nullptr, ReadBuffer* buffer = nullptr);

/// Reads one rank's shard of one parameter, row-major, and runs its eager steps.
/// destination.size() is recipe.result.num_bytes(). Throws as read_view and as the eager functions.
void read_shard(const TensorFile& file, const ShardRecipe& recipe, std::span<std::byte> destination,
                ReadStats* stats = nullptr, ReadBuffer* buffer = nullptr);

/// What reading a rank's part of a plan will cost, without reading.
ReadStats count_reads(const ShardPlan& plan, int64_t rank);

}  // namespace weft::io
