#include "weft/io/check_finite.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "weft/core/error.h"

namespace weft::io {
namespace {

constexpr uint64_t kPieceBytes = uint64_t{4} << 20;

// Where the numbers lie in what a type stores together, and which of their bits are the exponent
// (of E4M3, which has no infinities, with the mantissa): all of these are set in NaN and infinity
// alone.
struct Numbers {
  uint64_t block_bytes;
  std::vector<uint64_t> offsets;
  uint64_t num_bytes;
  uint64_t exponent;
};

constexpr uint64_t kHalf = 0x7c00;

Numbers halves_at(Dtype dtype, std::vector<uint64_t> offsets) {
  return {static_cast<uint64_t>(info(dtype).block_bytes), std::move(offsets), 2, kHalf};
}

// Source of the blocks' layouts: ggml-common.h of llama.cpp. Nothing for types without such
// numbers.
std::optional<Numbers> numbers_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF8E4M3:
      return Numbers{1, {0}, 1, 0x7f};
    case Dtype::kF16:
      return Numbers{2, {0}, 2, kHalf};
    case Dtype::kBF16:
      return Numbers{2, {0}, 2, 0x7f80};
    case Dtype::kF32:
      return Numbers{4, {0}, 4, 0x7f800000};
    case Dtype::kF64:
      return Numbers{8, {0}, 8, 0x7ff0000000000000};
    case Dtype::kQ4_0:
    case Dtype::kQ5_0:
    case Dtype::kQ8_0:
    case Dtype::kIQ2XXS:
    case Dtype::kIQ2XS:
    case Dtype::kIQ2S:
    case Dtype::kIQ3XXS:
    case Dtype::kIQ3S:
    case Dtype::kIQ1S:
    case Dtype::kIQ4NL:
    case Dtype::kIQ4XS:
      return halves_at(dtype, {0});
    case Dtype::kQ4_1:
    case Dtype::kQ5_1:
    case Dtype::kQ4K:
    case Dtype::kQ5K:
      return halves_at(dtype, {0, 2});
    case Dtype::kQ2K:
      return halves_at(dtype, {80, 82});
    case Dtype::kQ3K:
      return halves_at(dtype, {108});
    case Dtype::kQ6K:
      return halves_at(dtype, {208});
    case Dtype::kIQ1M:
      // The highest four bits of four words, the lowest first, are a float16.
      return Numbers{56, {48}, 8, 0x7000c00000000000};
    case Dtype::kTQ1_0:
      return halves_at(dtype, {52});
    case Dtype::kTQ2_0:
      return halves_at(dtype, {64});
    default:
      return std::nullopt;
  }
}

// The least place in `bytes`, which hold whole blocks, of a block with such a number.
std::optional<uint64_t> find_block(std::span<const std::byte> bytes, const Numbers& numbers) {
  for (uint64_t block = 0; block < bytes.size() / numbers.block_bytes; ++block) {
    for (const uint64_t offset : numbers.offsets) {
      uint64_t value = 0;
      std::memcpy(&value, bytes.data() + block * numbers.block_bytes + offset, numbers.num_bytes);
      if ((value & numbers.exponent) == numbers.exponent) return block;
    }
  }
  return std::nullopt;
}

void check_tensor(const TensorFile& file, const TensorMeta& tensor) {
  const auto numbers = numbers_of(tensor.dtype);
  if (!numbers) return;
  const uint64_t piece_bytes = kPieceBytes / numbers->block_bytes * numbers->block_bytes;
  std::vector<std::byte> piece(std::min(piece_bytes, tensor.num_bytes));
  for (uint64_t start = 0; start < tensor.num_bytes; start += piece.size()) {
    const auto bytes = std::span(piece).first(
        static_cast<size_t>(std::min<uint64_t>(piece.size(), tensor.num_bytes - start)));
    file.read_at(tensor.file, tensor.offset + start, bytes);
    const auto block = find_block(bytes, *numbers);
    core::check<core::FormatError>(
        !block, file.path(), ": tensor ", core::quote(tensor.name), ": ",
        info(tensor.dtype).block_elements == 1 ? "element " : "the scale of block ",
        start / numbers->block_bytes + block.value_or(0),
        ", expected a finite number, got NaN or infinity; the file is damaged: get it anew");
  }
}

}  // namespace

void check_finite(const TensorFile& file) {
  for (const TensorMeta& tensor : file.tensors()) check_tensor(file, tensor);
}

}  // namespace weft::io
