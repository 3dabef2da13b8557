#include "weft/train/checkpoint/write_weights.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "weft/core/error.h"
#include "weft/io/tensor_folder_writer.h"
#include "weft/train/slice_runs.h"

namespace weft::train {
namespace {

// Numbers that are in memory at a time.
constexpr int64_t kChunk = int64_t{1} << 20;

uint16_t to_bfloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40);
  const uint32_t half = 0x7fff + ((bits >> 16) & 1);
  return static_cast<uint16_t>((bits + half) >> 16);
}

class Converter {
 public:
  Converter(CheckpointReader& reader, io::Dtype dtype, io::TensorFolderWriter& writer)
      : reader_(reader), is_half_(dtype == io::Dtype::kBF16), writer_(writer) {}

  void write(const io::TensorSpec& tensor) {
    Slice slice{tensor.name, tensor.shape, {}, 0, {}};
    const int64_t all = shard_elements(slice);
    for (int64_t start = 0; start < all; start += kChunk) {
      slice.elements = {start, std::min(kChunk, all - start)};
      values_.resize(static_cast<size_t>(slice.elements.length));
      reader_.read("master", slice, values_);
      write_at(tensor.name, static_cast<uint64_t>(start));
    }
  }

 private:
  void write_at(const std::string& name, uint64_t start) {
    if (!is_half_) {
      writer_.write(name, start * sizeof(float), std::as_bytes(std::span(values_)));
      return;
    }
    halves_.resize(values_.size());
    std::transform(values_.begin(), values_.end(), halves_.begin(), to_bfloat16);
    writer_.write(name, start * sizeof(uint16_t), std::as_bytes(std::span(halves_)));
  }

  CheckpointReader& reader_;
  bool is_half_;
  io::TensorFolderWriter& writer_;
  std::vector<float> values_;
  std::vector<uint16_t> halves_;
};

}  // namespace

void write_weights(CheckpointReader& reader, io::Dtype dtype, uint64_t max_file_bytes,
                   const std::string& folder) {
  core::check<core::ConfigError>(dtype == io::Dtype::kF32 || dtype == io::Dtype::kBF16,
                                 "train.write_weights: type ", io::info(dtype).name,
                                 ", expected F32 or BF16");
  std::vector<io::TensorSpec> tensors;
  for (const auto& [name, parameter] : reader.manifest().parameters) {
    tensors.push_back({name, dtype, parameter.sizes});
  }
  // As PyTorch's own files say of themselves, which transformers asks for.
  io::TensorFolderWriter writer(folder,
                                io::spread_over_files(tensors, max_file_bytes, {{"format", "pt"}}),
                                io::TensorFolderWriter::Role::kLaysOut);
  Converter converter(reader, dtype, writer);
  for (const io::TensorSpec& tensor : tensors) converter.write(tensor);
  writer.sync();
  writer.verify();
}

}  // namespace weft::train
