#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace weft::quant {

/// Bits of the words in which AWQ, GPTQ and compressed-tensors pack small numbers.
inline constexpr int64_t kWordBits = 32;

/// Numbers below 2^bits that words hold: words, int32 [rows, count * bits / 32], on any device, are
/// a stream of bits along each row, lowest bits first. Returns uint8 [rows, count] on the CPU.
/// Fewer words are an InternalError.
at::Tensor unpack_words(const at::Tensor& words, int64_t bits, int64_t count);

/// The inverse down columns: codes, uint8 [rows, columns], become int32 [rows * bits / 32,
/// columns], each column a stream of bits. Rows that fill no whole words are an InternalError.
at::Tensor words_of_columns(const at::Tensor& codes, int64_t bits);

/// A stored part in messages: "[2, 4] of Int", or "none".
std::string part_text(const at::Tensor& part);

}  // namespace weft::quant
