#include "weft/io/matrices/codebook_values.h"

#include <ATen/ops/empty.h>

#include <nlohmann/json.hpp>
#include <string>

#include "weft/core/error.h"
#include "weft/core/json.h"
#include "weft/io/load_tensor.h"
#include "weft/io/matrices/stretches.h"
#include "weft/io/stored_tensor.h"
#include "weft/quant/formats/codebook.h"

namespace weft::io {
namespace {

using core::check;
using core::FormatError;
using Json = nlohmann::json;

std::string where_of(const TensorFile& file, const TensorMeta& tensor) {
  return core::join(file.path(), ": tensor ", core::quote(tensor.name));
}

at::Tensor bytes_in(const TensorFile& file, const TensorMeta& tensor) {
  constexpr uint64_t kMostBytes = uint64_t{1} << 32;
  check<FormatError>(tensor.dtype == Dtype::kU8 && tensor.num_bytes <= kMostBytes,
                     where_of(file, tensor), ": type ", info(tensor.dtype).name, ", expected U8");
  const ShardRecipe whole{{}, View::of(tensor)};
  at::Tensor bytes = new_stored(file, whole);
  read_shard(file, whole, bytes_of(bytes));
  return bytes;
}

// bitsandbytes' words about a matrix: JSON in bytes.
struct State {
  std::string where;
  Json json;

  State(const TensorFile& file, const TensorMeta& tensor) : where(where_of(file, tensor)) {
    constexpr uint64_t kMostBytes = 4096;
    check<FormatError>(tensor.num_bytes <= kMostBytes, where, ": ", tensor.num_bytes,
                       " bytes, expected at most ", kMostBytes);
    const at::Tensor bytes = bytes_in(file, tensor);
    json =
        core::parse_json({static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes()}, where);
  }

  // Codes that share a scale.
  int64_t block(const char* key) const {
    constexpr int64_t kMost = 4096;
    const int64_t size = core::to_int64(core::require(json, key, where), where);
    check<FormatError>(size >= 2 && size <= kMost && (size & (size - 1)) == 0, where, ".", key,
                       ": ", size, ", expected a power of two, 2 to ", kMost);
    return size;
  }
};

void check_count(const at::Tensor& scales, int64_t num_codes, int64_t block,
                 const std::string& where) {
  const int64_t expected = (num_codes + block - 1) / block;
  check<FormatError>(scales.dim() == 1 && scales.numel() == expected, where, ": ", scales.numel(),
                     " scales for ", num_codes, " numbers in blocks of ", block, ", expected ",
                     expected);
}

// Scales that are codes of a book of 256, with a scale for each block of them, and an offset.
at::Tensor nested_scales(const TensorFile& file, const State& state,
                         const std::vector<std::string>& tensors) {
  const TensorMeta& codes = file.require(tensors[0]);
  const at::Tensor outer = load_tensor(file, tensors[1], at::kFloat).contiguous();
  const at::Tensor book = load_tensor(file, tensors[2], at::kFloat).contiguous();
  constexpr int64_t kBookSize = 256;
  check<FormatError>(book.numel() == kBookSize, where_of(file, file.require(tensors[2])), ": ",
                     book.numel(), " numbers, expected ", kBookSize);
  const at::Tensor bytes = bytes_in(file, codes);
  const int64_t block = state.block("nested_blocksize");
  check_count(outer, bytes.numel(), block, where_of(file, file.require(tensors[1])));
  const auto offset = static_cast<float>(
      core::to_double(core::require(state.json, "nested_offset", state.where), state.where));
  at::Tensor scales = at::empty({bytes.numel()}, at::kFloat);
  for (int64_t i = 0; i < bytes.numel(); ++i) {
    const float value = book.const_data_ptr<float>()[bytes.const_data_ptr<uint8_t>()[i]] *
                        outer.const_data_ptr<float>()[i / block];
    scales.mutable_data_ptr<float>()[i] = value + offset;
  }
  return scales;
}

}  // namespace

CodebookValues::CodebookValues(const TensorFile& file, const MatrixFormat& format)
    : file_(file),
      tensor_(file.require(format.parts[0].tensor)),
      book_(load_tensor(file, format.beside[1], at::kFloat).contiguous()) {
  const State state(file, file.require(format.beside[0]));
  block_ = state.block("blocksize");
  const Json shape = {format.parts[0].seen_as[0], format.parts[0].seen_as[1] * 2};
  const Json& said = core::require(state.json, "shape", state.where);
  check<FormatError>(said == shape, state.where, ".shape: ", core::dump_json(said), ", expected ",
                     core::dump_json(shape), "; the file and the model's config disagree");
  const std::vector<std::string> scales(format.beside.begin() + 2, format.beside.end());
  scales_ = scales.size() == 1 ? load_tensor(file, scales[0], at::kFloat).contiguous()
                               : nested_scales(file, state, scales);
  const auto num_codes = static_cast<int64_t>(tensor_.num_bytes) * 2;
  check_count(scales_, num_codes, block_, where_of(file, file.require(scales[0])));
}

at::Tensor CodebookValues::values(const View& view, std::span<const std::byte> codes) const {
  at::Tensor made = at::empty({view.size(0), view.size(1) * 2}, at::kFloat);
  const std::span bytes(reinterpret_cast<const uint8_t*>(codes.data()), codes.size());
  const std::span<const float, 16> book(book_.const_data_ptr<float>(), 16);
  const float* const scales = scales_.const_data_ptr<float>();
  float* const to = made.mutable_data_ptr<float>();
  const int64_t unit = block_ / 2;
  for_each_stretch(stretches(file_, tensor_, view, unit), [&](const Stretch& stretch) {
    const auto place = static_cast<size_t>(stretch.place);
    quant::scale_codebook(bytes.subspan(place, static_cast<size_t>(stretch.num_bytes)), book,
                          scales[stretch.start / unit], to + 2 * stretch.place);
  });
  return made;
}

}  // namespace weft::io
