#include "weft/io/formats/gguf.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <string_view>

#include "weft/core/checked.h"
#include "weft/core/error.h"
#include "weft/io/formats/byte_reader.h"
#include "weft/io/formats/gguf_values.h"
#include "weft/io/formats/header_checks.h"

namespace weft::io {

using core::check;
using core::fail;
using core::FormatError;
using core::quote;

namespace {

constexpr std::string_view kAlignmentKey = "general.alignment";
constexpr std::string_view kAgain = "; fetch or convert the file again";

class GgufParser {
 public:
  GgufParser(const core::File& file, size_t file_index)
      : file_(file), file_index_(file_index), reader_(file, GgufLimits::kMaxHeaderBytes) {}

  GgufHeader parse() {
    check_version();
    // The smallest tensor takes 24 bytes (no name, no dimension), the smallest key 14.
    const uint64_t num_tensors = read_count("number of tensors", 24, GgufLimits::kMaxTensors);
    const uint64_t num_keys = read_count("number of keys", 14, GgufLimits::kMaxKeys);
    for (uint64_t i = 0; i < num_keys; ++i) read_key_value();
    for (uint64_t i = 0; i < num_tensors; ++i) header_.tensors.push_back(read_tensor_info());
    check_unique_names(file_.path(), header_.tensors);
    place_tensors();
    return std::move(header_);
  }

 private:
  void check_version();
  uint64_t read_count(std::string_view what, uint64_t min_bytes, uint64_t limit);
  void read_key_value();
  std::string read_key();
  TensorMeta read_tensor_info();
  std::vector<int64_t> read_shape();
  Dtype read_dtype();
  void set_size(TensorMeta& tensor) const;
  uint64_t read_alignment(const MetaValue& value) const;
  void place_tensors();
  void check_offset(const TensorMeta& tensor, const TensorMeta* previous, uint64_t expected) const;

  const core::File& file_;
  size_t file_index_;
  ByteReader reader_;
  uint64_t alignment_ = 32;
  GgufHeader header_;
};

void GgufParser::check_version() {
  reader_.set_subject("magic", "");
  const std::string magic = reader_.read_string(4);
  check<FormatError>(magic == "GGUF", file_.path(), ": bad magic ", quote(magic),
                     " at byte 0, expected 'GGUF'; give a GGUF file");
  reader_.set_subject("version", "");
  const auto version = reader_.read<uint32_t>();
  check<FormatError>(version == 0 || (version & 0xFFFF) != 0, file_.path(),
                     ": big-endian GGUF (version ", version >> 24,
                     " in the other byte order), expected little-endian; convert the model again");
  check<FormatError>(version != 1, file_.path(),
                     ": GGUF version 1, expected 2 or 3; convert the model again");
  check<FormatError>(version == 2 || version == 3, file_.path(), ": GGUF version ", version,
                     " at byte 4, expected 2 or 3; use a version of weft that knows it");
}

uint64_t GgufParser::read_count(std::string_view what, uint64_t min_bytes, uint64_t limit) {
  reader_.set_subject(what, "");
  const std::string where = reader_.where();
  const auto count = reader_.read<uint64_t>();
  check<FormatError>(count <= limit, where, ": got ", count, ", expected at most ", limit, kAgain);
  reader_.need_items(count, min_bytes);
  return count;
}

std::string GgufParser::read_key() {
  reader_.set_subject("key", "");
  const std::string where = reader_.where();
  const auto length = reader_.read<uint64_t>();
  check<FormatError>(length >= 1 && length <= GgufLimits::kMaxKeyBytes, where, ": key of ", length,
                     " bytes, expected 1 to ", GgufLimits::kMaxKeyBytes, kAgain);
  std::string key = reader_.read_string(length);
  const bool is_ascii =
      std::all_of(key.begin(), key.end(), [](char c) { return c > 0 && c < 0x7f; });
  check<FormatError>(is_ascii, where, ": key ", quote(key), " is not ASCII", kAgain);
  return key;
}

void GgufParser::read_key_value() {
  const std::string key = read_key();
  reader_.set_subject("key", key);
  const std::string where = reader_.where();
  const auto type = reader_.read<uint32_t>();
  if (key == kAlignmentKey) {
    check<FormatError>(type == static_cast<uint32_t>(GgufType::kU32), where, ": type ", type,
                       ", expected 4 (u32)", kAgain);
  }
  const auto [entry, is_new] = header_.metadata.emplace(key, read_gguf_value(reader_, type));
  check<FormatError>(is_new, where, ": the key stands twice, expected once", kAgain);
  if (key == kAlignmentKey) alignment_ = read_alignment(entry->second);
}

uint64_t GgufParser::read_alignment(const MetaValue& value) const {
  const uint64_t alignment = std::get<uint64_t>(value);
  check<FormatError>(alignment % 8 == 0 && std::has_single_bit(alignment) &&
                         alignment <= GgufLimits::kMaxAlignment,
                     reader_.where(), ": alignment ", alignment,
                     ", expected a power of two from 8 to ", GgufLimits::kMaxAlignment, kAgain);
  return alignment;
}

std::vector<int64_t> GgufParser::read_shape() {
  const std::string where = reader_.where();
  const auto num_dims = reader_.read<uint32_t>();
  check<FormatError>(num_dims <= GgufLimits::kMaxDims, where, ": ", num_dims,
                     " dimensions, expected at most ", GgufLimits::kMaxDims, kAgain);
  std::vector<int64_t> shape(num_dims);
  // The fastest dimension comes first in the file.
  for (size_t i = 0; i < shape.size(); ++i) {
    const auto dim = reader_.read<uint64_t>();
    check<FormatError>(dim >= 1 && dim <= INT64_MAX, where, ": dimension ", i, " is ", dim,
                       ", expected 1 to 2^63 - 1", kAgain);
    shape[shape.size() - 1 - i] = static_cast<int64_t>(dim);
  }
  return shape;
}

Dtype GgufParser::read_dtype() {
  const std::string where = reader_.where();
  const auto type = reader_.read<uint32_t>();
  const auto dtype = core::dtype_from_gguf(type);
  check<FormatError>(
      dtype.has_value(), where, ": type ", type,
      ", expected one of F32 (0), F16 (1), Q4_0 (2), Q4_1 (3), Q5_0 (6), Q5_1 (7), "
      "Q8_0 (8), Q2_K to Q6_K (10 to 14), IQ2_XXS to IQ4_XS (16 to 23), I8 to F64 (24 to 28), "
      "IQ1_M (29), BF16 (30), TQ1_0 (34), TQ2_0 (35), MXFP4 (39); convert the model to one of "
      "these");
  return *dtype;
}

void GgufParser::set_size(TensorMeta& tensor) const {
  const DtypeInfo& type = info(tensor.dtype);
  const int64_t row = tensor.shape.empty() ? 1 : tensor.shape.back();
  check<FormatError>(row % type.block_elements == 0, reader_.where(), ": rows of ", row,
                     " elements, expected a multiple of ", type.block_elements, " for ", type.name,
                     kAgain);
  const auto bytes = tensor_bytes(tensor.dtype, tensor.shape);
  if (!bytes) {
    fail<FormatError>(reader_.where(), ": the size of ", type.name, " ",
                      core::list_text(tensor.shape), " does not fit in 63 bits", kAgain);
  }
  tensor.num_bytes = *bytes;
}

TensorMeta GgufParser::read_tensor_info() {
  TensorMeta tensor;
  tensor.file = file_index_;
  reader_.set_subject("tensor", "");
  const std::string where = reader_.where();
  const auto length = reader_.read<uint64_t>();
  check<FormatError>(length <= GgufLimits::kMaxNameBytes, where, ": name of ", length,
                     " bytes, expected at most ", GgufLimits::kMaxNameBytes, kAgain);
  tensor.name = reader_.read_string(length);
  check_tensor_name(file_.path(), tensor.name);
  reader_.set_subject("tensor", tensor.name);
  tensor.shape = read_shape();
  tensor.dtype = read_dtype();
  set_size(tensor);
  tensor.offset = reader_.read<uint64_t>();
  return tensor;
}

void GgufParser::check_offset(const TensorMeta& tensor, const TensorMeta* previous,
                              uint64_t expected) const {
  if (tensor.offset == expected) return;
  const std::string where = core::join(file_.path(), ": tensor ", quote(tensor.name));
  const std::string after = previous == nullptr ? "" : " after " + quote(previous->name);
  const char* what = "leaves a gap";
  if (tensor.offset % alignment_ != 0) {
    what = "is not aligned";
  } else if (tensor.offset < expected) {
    what = "overlaps";
  }
  fail<FormatError>(where, ": data offset ", tensor.offset, " ", what, after, ", expected ",
                    expected, " (alignment ", alignment_, ")", kAgain);
}

void GgufParser::place_tensors() {
  // The position is at most the header's limit, so neither sum here overflows.
  const uint64_t data_start = *core::checked_align_up(reader_.position(), alignment_);
  const TensorMeta* previous = nullptr;
  uint64_t expected = 0;
  for (TensorMeta& tensor : header_.tensors) {
    check_offset(tensor, previous, expected);
    const uint64_t start = data_start + expected;
    const uint64_t have = file_.size() > start ? file_.size() - start : 0;
    if (tensor.num_bytes > have) {
      fail<FormatError>(file_.path(), ": tensor ", quote(tensor.name), " at byte ", start,
                        ": truncated: need ", tensor.num_bytes, " bytes, have ", have, kAgain);
    }
    tensor.offset = start;
    expected = *core::checked_align_up(expected + tensor.num_bytes, alignment_);
    previous = &tensor;
  }
}

}  // namespace

GgufHeader read_gguf_header(const core::File& file, size_t file_index) {
  return GgufParser(file, file_index).parse();
}

}  // namespace weft::io
