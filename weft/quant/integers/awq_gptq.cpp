#include "weft/quant/integers/awq_gptq.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "weft/core/error.h"
#include "weft/quant/integers/packed_words.h"

namespace weft::quant {
namespace {

using core::check;
using core::ShapeError;

/// The column, of a word's eight, that each of AWQ's nibbles holds, lowest first.
constexpr std::array<int64_t, 8> kAwqColumns = {0, 2, 4, 6, 1, 3, 5, 7};

/// One matrix's sizes.
struct Sizes {
  int64_t in = 0;
  int64_t out = 0;
  int64_t groups = 0;
  int64_t bits = 0;
  /// Columns are of quant groups in any order, and scales those of all groups.
  bool is_ordered = false;

  /// Words that hold `count` codes.
  int64_t words(int64_t count) const { return count * bits / kWordBits; }
};

void check_words(const at::Tensor& part, const char* name, const char* where) {
  const bool is_good =
      part.defined() && part.dim() == 2 && part.scalar_type() == at::kInt && part.numel() > 0;
  check<ShapeError>(is_good, where, ": ", name, ", expected an int32 matrix, got ", part_text(part),
                    "; check that the file is in this format");
}

void check_parts(const Sizes& sizes, const at::Tensor& qzeros, const at::Tensor& scales,
                 const char* where) {
  const bool is_matrix = scales.defined() && scales.dim() == 2 && scales.is_floating_point();
  check<ShapeError>(is_matrix && scales.size(0) > 0 && scales.size(1) == sizes.out, where,
                    ": scales, expected a floating matrix [groups, ", sizes.out, "], got ",
                    part_text(scales), "; take the same columns of all parts");
  check<ShapeError>(sizes.is_ordered || sizes.in % scales.size(0) == 0, where,
                    ": scales, expected a divisor of the ", sizes.in,
                    " rows of the matrix as number of quant groups, got ", scales.size(0),
                    "; repeat the scales of the groups that are cut");
  check_words(qzeros, "qzeros", where);
  const int64_t columns = sizes.words(sizes.out);
  check<ShapeError>(qzeros.size(0) == scales.size(0) && qzeros.size(1) == columns, where,
                    ": qzeros, expected shape [", scales.size(0), ", ", columns,
                    "] (that of scales in words), got ", core::list_text(qzeros.sizes()),
                    "; take the same rows and columns of all parts");
}

at::Tensor on_cpu(const at::Tensor& part) { return part.cpu().contiguous(); }

/// Zero points [groups, out] as float32, as they are stored.
at::Tensor stored_zeros(const at::Tensor& qzeros, const Sizes& sizes) {
  return unpack_words(qzeros, sizes.bits, sizes.out).to(at::kFloat);
}

at::Tensor transposed(const at::Tensor& part) { return part.t().contiguous(); }

/// Scales and offsets [out, groups] in float32.
void set_scales(AffineTensor& w, const at::Tensor& scales, const at::Tensor& zeros) {
  const at::Tensor wide = on_cpu(scales).to(at::kFloat);
  w.scales = transposed(wide);
  w.offsets = transposed(zeros.neg() * wide);
}

/// Columns of words that are taken apart together: a line of the cache.
constexpr int64_t kBlockWords = 16;
/// Rows of words that are taken apart together.
constexpr int64_t kBlockRows = 128;

/// Words of the file and bytes of the result.
struct AwqMatrix {
  const uint32_t* words = nullptr;
  int64_t word_columns = 0;
  uint8_t* packed = nullptr;
  int64_t row_bytes = 0;
};

/// Two neighbouring rows of a block give one byte of each of the result's rows.
void convert_awq_block(const AwqMatrix& w, int64_t first_word, int64_t num_words, int64_t first_row,
                       int64_t num_rows) {
  std::array<std::array<uint8_t, kBlockRows / 2>, 8 * kBlockWords> bytes;
  for (int64_t row = 0; row < num_rows; row += 2) {
    const uint32_t* even = w.words + (first_row + row) * w.word_columns + first_word;
    const uint32_t* odd = even + w.word_columns;
    for (int64_t word = 0; word < num_words; ++word) {
      for (size_t nibble = 0; nibble < 8; ++nibble) {
        const uint32_t low = even[word] >> (4 * nibble) & 15;
        const uint32_t high = odd[word] >> (4 * nibble) & 15;
        const auto column = static_cast<size_t>(8 * word + kAwqColumns[nibble]);
        bytes[column][static_cast<size_t>(row / 2)] = static_cast<uint8_t>(low | high << 4);
      }
    }
  }
  for (int64_t column = 0; column < 8 * num_words; ++column) {
    std::memcpy(w.packed + (8 * first_word + column) * w.row_bytes + first_row / 2,
                bytes[static_cast<size_t>(column)].data(), static_cast<size_t>(num_rows / 2));
  }
}

/// The packed rows of an AffineTensor from words [in, out / 8].
at::Tensor convert_awq_words(const at::Tensor& qweight, const Sizes& sizes) {
  const at::Tensor words = on_cpu(qweight);
  at::Tensor packed = at::empty({sizes.out, sizes.in / 2}, at::kByte);
  const AwqMatrix w{reinterpret_cast<const uint32_t*>(words.const_data_ptr<int32_t>()),
                    words.size(1), packed.mutable_data_ptr<uint8_t>(), sizes.in / 2};
  const int64_t blocks = (w.word_columns + kBlockWords - 1) / kBlockWords;
  at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * kBlockWords;
      const int64_t count = std::min(kBlockWords, w.word_columns - first);
      for (int64_t row = 0; row < sizes.in; row += kBlockRows) {
        convert_awq_block(w, first, count, row, std::min(kBlockRows, sizes.in - row));
      }
    }
  });
  return packed;
}

/// AWQ's order of columns within a word, undone.
at::Tensor in_awq_order(const at::Tensor& zeros) {
  at::Tensor ordered = at::empty_like(zeros);
  const at::Tensor to = ordered.unflatten(1, {-1, 8}), from = zeros.unflatten(1, {-1, 8});
  for (int64_t nibble = 0; nibble < 8; ++nibble) {
    to.select(2, kAwqColumns[static_cast<size_t>(nibble)]).copy_(from.select(2, nibble));
  }
  return ordered;
}

/// Throws unless all zero points are the middle code.
void check_symmetric(const at::Tensor& zeros, const GptqOptions& options) {
  const auto middle = static_cast<double>(1 << (options.bits - 1));
  const at::Tensor wrong = zeros.ne(middle);
  if (!wrong.any().item<bool>()) return;
  const at::Tensor first = wrong.nonzero()[0];
  const auto group = first[0].item<int64_t>(), column = first[1].item<int64_t>();
  core::fail<ShapeError>("quant.from_gptq: zero point [", group, ", ", column, "], expected ",
                         middle, " (symmetric), got ", zeros[group][column].item<float>(),
                         options.stores_zero_less_one ? " (one more than stored)" : "",
                         "; check \"sym\" and \"checkpoint_format\" of the file's config");
}

constexpr const char* kGptq = "quant.from_gptq";

Sizes gptq_sizes(const at::Tensor& qweight, const at::Tensor& qzeros, const at::Tensor& scales,
                 int64_t bits, bool is_ordered) {
  check<ShapeError>(bits == 2 || bits == 3 || bits == 4 || bits == 8, kGptq,
                    ": bits, expected one of 2, 3, 4, 8, got ", bits, "; check the file's config");
  check_words(qweight, "qweight", kGptq);
  check<ShapeError>(qweight.size(0) * kWordBits % bits == 0, kGptq,
                    ": qweight, expected columns of whole ", bits, "-bit codes, got ",
                    qweight.size(0), " words; cut at a multiple of ", bits);
  Sizes sizes{qweight.size(0) * kWordBits / bits, qweight.size(1), 0, bits, is_ordered};
  check<ShapeError>(sizes.out * bits % kWordBits == 0, kGptq,
                    ": qweight, expected columns whose zero points fill words, got ", sizes.out,
                    " columns of ", bits, " bits; cut at a multiple of ", kWordBits);
  check_parts(sizes, qzeros, scales, kGptq);
  sizes.groups = scales.size(0);
  return sizes;
}

/// A column's stream of bits is what a row of the result is.
at::Tensor gptq_rows(const at::Tensor& qweight) {
  // Of one word a row `contiguous` would keep strides by which bytes can't be seen.
  return on_cpu(qweight).t().clone(at::MemoryFormat::Contiguous).view(at::kByte);
}

/// One more in every code of a word. Programs take one off whole words and add it to them: what
/// a code of 0 borrowed from the next one goes back there.
at::Tensor with_one_more(const at::Tensor& words, int64_t bits) {
  const int64_t ones = int64_t{UINT32_MAX} / ((int64_t{1} << bits) - 1);
  return (words.to(at::kLong) + ones).to(at::kInt);
}

/// Zero points [groups, out] in float32. Codes of 3 bits end in other words.
at::Tensor gptq_zeros(const at::Tensor& qzeros, const Sizes& sizes, const GptqOptions& options) {
  if (!options.stores_zero_less_one) return stored_zeros(qzeros, sizes);
  if (sizes.bits == 3) return stored_zeros(qzeros, sizes) + 1;
  return stored_zeros(with_one_more(qzeros, sizes.bits), sizes);
}

}  // namespace

AffineTensor from_awq(const at::Tensor& qweight, const at::Tensor& qzeros,
                      const at::Tensor& scales) {
  constexpr const char* kWhere = "quant.from_awq";
  check_words(qweight, "qweight", kWhere);
  Sizes sizes{qweight.size(0), qweight.size(1) * 8, 0, 4};
  check<ShapeError>(sizes.in % 2 == 0, kWhere, ": qweight, expected an even number of rows, got ",
                    sizes.in, "; cut at a multiple of 2");
  check_parts(sizes, qzeros, scales, kWhere);
  sizes.groups = scales.size(0);
  AffineTensor w;
  w.bits = sizes.bits;
  w.group_size = sizes.in / sizes.groups;
  w.packed = convert_awq_words(qweight, sizes);
  set_scales(w, scales, in_awq_order(stored_zeros(qzeros, sizes)));
  return w;
}

AffineTensor from_awq_rows(const at::Tensor& packed, const at::Tensor& qzeros,
                           const at::Tensor& scales, std::span<const int64_t> groups) {
  constexpr const char* kWhere = "quant.from_awq_rows";
  constexpr int64_t kBits = 4, kPerWord = kWordBits / kBits;
  check<ShapeError>(packed.defined() && packed.dim() == 2 && packed.scalar_type() == at::kByte &&
                        packed.numel() > 0 && !groups.empty(),
                    kWhere, ": packed, expected a matrix of bytes, got ", part_text(packed),
                    "; check that the file is in this format");
  const int64_t out = packed.size(0), in = packed.size(1) * 8 / kBits;
  const auto num_runs = static_cast<int64_t>(groups.size());
  check<ShapeError>(in % num_runs == 0, kWhere, ": groups, expected a divisor of the ", in,
                    " columns as number of runs, got ", num_runs, "; cut at quant groups");
  check_words(qzeros, "qzeros", kWhere);
  const bool fits = scales.defined() && scales.dim() == 2 && scales.is_floating_point() &&
                    scales.size(0) == out && qzeros.size(0) == out &&
                    scales.size(1) == qzeros.size(1) * kPerWord &&
                    std::ranges::all_of(groups, [&](int64_t group) {
                      return group >= 0 && group < scales.size(1);
                    });
  check<ShapeError>(fits, kWhere, ": scales, expected floating [", out, ", ",
                    qzeros.size(1) * kPerWord, "] for all quant groups, got ", part_text(scales),
                    "; take the same rows of all parts");
  const at::Tensor index = at::tensor(at::IntArrayRef(groups.data(), groups.size()), at::kLong);
  const at::Tensor zeros = unpack_words(qzeros, kBits, scales.size(1)).index_select(1, index);
  AffineTensor w;
  w.bits = kBits;
  w.group_size = in / num_runs;
  w.packed = on_cpu(packed);
  w.scales = on_cpu(scales).index_select(1, index).to(at::kFloat);
  w.offsets = zeros.to(at::kFloat).neg() * w.scales;
  return w;
}

AffineTensor from_gptq(const at::Tensor& qweight, const at::Tensor& qzeros,
                       const at::Tensor& scales, const GptqOptions& options) {
  const Sizes sizes = gptq_sizes(qweight, qzeros, scales, options.bits, false);
  AffineTensor w;
  w.bits = options.bits;
  w.group_size = sizes.in / sizes.groups;
  w.packed = gptq_rows(qweight);
  const at::Tensor zeros = gptq_zeros(qzeros, sizes, options);
  if (!options.is_symmetric) {
    set_scales(w, scales, zeros);
    return w;
  }
  check_symmetric(zeros, options);
  w.scales = transposed(on_cpu(scales));
  return w;
}

OrderedIntegers ordered_gptq(const at::Tensor& qweight, const at::Tensor& qzeros,
                             const at::Tensor& scales, const GptqOptions& options) {
  const Sizes sizes = gptq_sizes(qweight, qzeros, scales, options.bits, true);
  const at::Tensor zeros = gptq_zeros(qzeros, sizes, options);
  if (options.is_symmetric) check_symmetric(zeros, options);
  return {options.bits,
          gptq_rows(qweight),
          transposed(on_cpu(scales).to(at::kFloat)),
          transposed(zeros),
          {}};
}

void check_trivial_g_idx(const at::Tensor& g_idx, int64_t first_row, int64_t group_size,
                         const std::string& where) {
  check<ShapeError>(g_idx.defined() && g_idx.dim() == 1 && g_idx.scalar_type() == at::kInt, where,
                    ": g_idx, expected int32 [rows], got ", part_text(g_idx),
                    "; check that the file is in this format");
  check<ShapeError>(group_size > 0, where, ": group size, expected a positive number, got ",
                    group_size, "; check the file's config");
  const at::Tensor groups = on_cpu(g_idx);
  const std::span<const int32_t> numbers(groups.const_data_ptr<int32_t>(),
                                         static_cast<size_t>(groups.numel()));
  int64_t row = first_row;
  for (const int32_t group : numbers) {
    check<core::ConfigError>(group == row / group_size, where, ": g_idx of row ", row,
                             ", expected quant group ", row / group_size, " (groups of ",
                             group_size, " neighbours), got ", group,
                             "; say \"desc_act\" in the file's config.json if it was made with "
                             "act-order");
    ++row;
  }
}

}  // namespace weft::quant
