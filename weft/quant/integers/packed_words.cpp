#include "weft/quant/integers/packed_words.h"

#include <ATen/ATen.h>

#include "weft/core/error.h"
#include "weft/quant/affine_reference.h"

namespace weft::quant {

at::Tensor unpack_words(const at::Tensor& words, int64_t bits, int64_t count) {
  const at::Tensor own = words.cpu().contiguous();
  core::check<core::InternalError>(own.size(1) * kWordBits == count * bits,
                                   "quant.unpack_words: ", own.size(1), " words a row for ", count,
                                   " numbers of ", bits, " bits");
  // Words of 32 bits are stored as the little-endian bytes that they are.
  const auto* bytes = reinterpret_cast<const uint8_t*>(own.const_data_ptr<int32_t>());
  const auto row_bytes = static_cast<size_t>(own.size(1) * kWordBits / 8);
  at::Tensor codes = at::empty({own.size(0), count}, at::kByte);
  for (int64_t row = 0; row < own.size(0); ++row) {
    reference::unpack(
        {bytes + static_cast<size_t>(row) * row_bytes, row_bytes}, bits,
        {codes.mutable_data_ptr<uint8_t>() + row * count, static_cast<size_t>(count)});
  }
  return codes;
}

at::Tensor words_of_columns(const at::Tensor& codes, int64_t bits) {
  const at::Tensor streams = codes.t().contiguous();
  const int64_t count = streams.size(1), words = count * bits / kWordBits;
  core::check<core::InternalError>(words * kWordBits == count * bits,
                                   "quant.words_of_columns: ", count, " numbers of ", bits,
                                   " bits fill no whole words");
  at::Tensor packed = at::empty({streams.size(0), words}, at::kInt);
  auto* bytes = reinterpret_cast<uint8_t*>(packed.mutable_data_ptr<int32_t>());
  const auto row_bytes = static_cast<size_t>(words * kWordBits / 8);
  for (int64_t row = 0; row < streams.size(0); ++row) {
    reference::pack({streams.const_data_ptr<uint8_t>() + row * count, static_cast<size_t>(count)},
                    bits, {bytes + static_cast<size_t>(row) * row_bytes, row_bytes});
  }
  return packed.t().contiguous();
}

std::string part_text(const at::Tensor& part) {
  if (!part.defined()) return "none";
  return core::join(core::list_text(part.sizes()), " of ", c10::toString(part.scalar_type()));
}

}  // namespace weft::quant
