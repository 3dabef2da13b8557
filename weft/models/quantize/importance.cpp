#include "weft/models/quantize/importance.h"

#include <ATen/ATen.h>

#include <cstring>
#include <span>

#include "weft/core/error.h"
#include "weft/core/files/file.h"
#include "weft/io/formats/byte_reader.h"
#include "weft/io/formats/write_gguf.h"
#include "weft/io/tensor_file.h"
#include "weft/models/decoder/weight_table.h"
#include "weft/models/decoder/weights/fused_rows.h"

namespace weft::models {
namespace {

using core::check;
using core::FormatError;

constexpr std::string_view kSquares = ".in_sum2";
constexpr std::string_view kCounts = ".counts";
constexpr std::string_view kProducts = ".in_products";
// The older form has squares alone, less than 2 GB of any model.
constexpr uint64_t kMostLegacyBytes = uint64_t{4} << 30;
constexpr int32_t kMostName = 4096;

at::Tensor read_floats(const io::TensorFile& file, const io::TensorMeta& meta) {
  check<FormatError>(meta.dtype == io::Dtype::kF32, file.path(), ": tensor ",
                     core::quote(meta.name), ", expected F32, got ", core::info(meta.dtype).name);
  at::Tensor numbers = at::empty(meta.shape, at::kFloat);
  check<FormatError>(numbers.dim() > 0 && numbers.numel() > 0, file.path(), ": tensor ",
                     core::quote(meta.name), ", expected numbers, got none");
  file.read_at(meta.file, meta.offset,
               {static_cast<std::byte*>(numbers.mutable_data_ptr()), numbers.nbytes()});
  check<FormatError>(at::isfinite(numbers).all().item<bool>(), file.path(), ": tensor ",
                     core::quote(meta.name), ", expected finite numbers");
  return numbers;
}

void add_tensor(const io::TensorFile& file, const io::TensorMeta& squares, Importance& to) {
  const std::string name = squares.name.substr(0, squares.name.size() - kSquares.size());
  InputStatistics statistics;
  statistics.squares = read_floats(file, squares);
  statistics.squares = statistics.squares.reshape({-1, statistics.squares.size(-1)});
  statistics.counts = read_floats(file, file.require(name + std::string(kCounts))).reshape({-1});
  check<FormatError>(statistics.counts.numel() == statistics.squares.size(0), file.path(),
                     ": tensor ", core::quote(name), ", expected a count for each of ",
                     statistics.squares.size(0), " matrices, got ", statistics.counts.numel());
  if (const auto* products = file.find(name + std::string(kProducts))) {
    const int64_t in = statistics.squares.size(1);
    check<FormatError>(products->shape == std::vector<int64_t>({in, in}), file.path(), ": tensor ",
                       core::quote(products->name), ", expected [", in, ", ", in, "], got ",
                       core::list_text(products->shape));
  }
  to.tensors.emplace(name, std::move(statistics));
}

int64_t whole_number(const io::TensorFile& file, const char* key) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end()) return 0;
  if (const auto* number = std::get_if<uint64_t>(&found->second)) {
    return static_cast<int64_t>(*number);
  }
  const auto* number = std::get_if<int64_t>(&found->second);
  return number == nullptr ? 0 : *number;
}

Importance read_gguf(const std::string& path) {
  const auto file = io::TensorFile::open(path);
  const auto type = file->metadata().find("general.type");
  const auto* text =
      type == file->metadata().end() ? nullptr : std::get_if<std::string>(&type->second);
  check<FormatError>(text != nullptr && *text == "imatrix", path, ": general.type, expected ",
                     core::quote("imatrix"), "; give a file of weft imatrix or llama-imatrix");
  Importance importance;
  importance.file = file;
  for (const io::TensorMeta& meta : file->tensors()) {
    if (meta.name.ends_with(kSquares)) add_tensor(*file, meta, importance);
  }
  const auto texts = file->metadata().find("imatrix.datasets");
  if (texts != file->metadata().end()) {
    if (const auto* list = std::get_if<std::vector<std::string>>(&texts->second)) {
      importance.texts = *list;
    }
  }
  importance.num_chunks = whole_number(*file, "imatrix.chunk_count");
  importance.chunk_size = whole_number(*file, "imatrix.chunk_size");
  return importance;
}

// The older form: a count of entries; for each its name, how many batches and numbers, and the
// numbers, which are mean squares times batches.
class LegacyReader {
 public:
  LegacyReader(const std::string& path, std::span<const std::byte> bytes)
      : path_(path), bytes_(bytes) {}

  Importance read() {
    Importance importance;
    const int32_t entries = number(1, 1 << 20, "entries");
    for (int32_t i = 0; i < entries; ++i) {
      const auto name = take(static_cast<size_t>(number(1, kMostName, "a name's bytes")));
      const int32_t batches = number(0, INT32_MAX, "batches");
      const auto in = static_cast<int64_t>(number(1, INT32_MAX, "numbers"));
      const auto squares = take(static_cast<size_t>(in) * sizeof(float));
      InputStatistics statistics;
      statistics.squares = at::empty({1, in}, at::kFloat);
      std::memcpy(statistics.squares.mutable_data_ptr(), squares.data(), squares.size());
      check<FormatError>(at::isfinite(statistics.squares).all().item<bool>(), path_, ": entry ", i,
                         ", expected finite numbers");
      statistics.counts = at::full({1}, std::max(batches, 1), at::kFloat);
      const std::string text(reinterpret_cast<const char*>(name.data()), name.size());
      importance.tensors.emplace(text, std::move(statistics));
    }
    return importance;
  }

 private:
  std::span<const std::byte> take(size_t count) {
    check<FormatError>(count <= bytes_.size() - position_, path_, ": byte ", position_,
                       ", expected ", count, " more, got ", bytes_.size() - position_,
                       "; it is no importance matrix or was cut off");
    position_ += count;
    return bytes_.subspan(position_ - count, count);
  }

  int32_t number(int32_t least, int32_t most, const char* what) {
    const size_t start = position_;
    int32_t value = 0;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    check<FormatError>(value >= least && value <= most, path_, ": byte ", start, ": ", what,
                       ", got ", value, "; it is no importance matrix");
    return value;
  }

  const std::string& path_;
  std::span<const std::byte> bytes_;
  size_t position_ = 0;
};

Importance read_legacy(const std::string& path) {
  const core::File file(path);
  check<FormatError>(file.size() <= kMostLegacyBytes, path, ": ", file.size(),
                     " bytes, expected an importance matrix");
  std::vector<std::byte> bytes(file.size());
  file.read_at(0, bytes);
  return LegacyReader(path, bytes).read();
}

bool is_gguf(const std::string& path) {
  const core::File file(path);
  std::array<std::byte, 4> magic = {};
  if (file.size() < magic.size()) return false;
  file.read_at(0, magic);
  return std::memcmp(magic.data(), "GGUF", magic.size()) == 0;
}

}  // namespace

std::string importance_name(const ModelConfig& config, const PartPlace& place) {
  const FusedRow* fused = written_gguf_row(config, place.part);
  return (fused != nullptr ? filled_name(fused->gguf, place) : gguf_name(config, place)) +
         ".weight";
}

at::Tensor Importance::of(const std::string& tensor, const TensorMatrix& matrix) const {
  const auto found = tensors.find(tensor);
  if (found == tensors.end()) return {};
  const at::Tensor& squares = found->second.squares;
  const int64_t matrices = squares.size(0), numbers = squares.size(1);
  const bool is_shared = matrices == 1 && numbers == matrix.columns;
  // The older form has the numbers of all experts in one row.
  const bool is_flat = matrices == 1 && !is_shared && numbers == matrix.columns * matrix.count;
  const bool has_own = matrices == matrix.count && numbers == matrix.columns;
  const std::string others = matrix.count > 1 ? core::join(" of ", matrix.count) : "";
  check<FormatError>(is_shared || is_flat || has_own, "importance matrix: ", core::quote(tensor),
                     ", expected ", matrix.columns, " columns of matrix ", matrix.index, others,
                     ", got ", core::list_text(squares.sizes()), "; it is of another model");
  const int64_t row = matrices == 1 ? 0 : matrix.index;
  const float count = found->second.counts[row].item<float>();
  if (!(count > 0)) return {};
  const int64_t first = is_flat ? matrix.index * matrix.columns : 0;
  return squares[row].narrow(0, first, matrix.columns) / count;
}

double Importance::tokens_of(const std::string& tensor, const TensorMatrix& matrix) const {
  if (!of(tensor, matrix).defined()) return 0;
  const at::Tensor& counts = tensors.at(tensor).counts;
  return counts[counts.size(0) == 1 ? 0 : matrix.index].item<double>();
}

bool Importance::has_products(const std::string& tensor) const {
  const auto found = tensors.find(tensor);
  if (found == tensors.end()) return false;
  return found->second.products.defined() ||
         (file != nullptr && file->find(tensor + std::string(kProducts)) != nullptr);
}

at::Tensor Importance::products_of(const std::string& tensor) const {
  if (!has_products(tensor)) return {};
  const InputStatistics& statistics = tensors.at(tensor);
  const at::Tensor sums = statistics.products.defined()
                              ? statistics.products
                              : read_floats(*file, file->require(tensor + std::string(kProducts)));
  return sums / statistics.counts[0].clamp_min(1);
}

Importance read_importance(const std::string& path) {
  return is_gguf(path) ? read_gguf(path) : read_legacy(path);
}

void write_importance(const Importance& importance, const std::string& path) {
  using io::GgufType;
  const std::vector<io::GgufKey> keys = {
      {"general.type", GgufType::kString, std::string("imatrix")},
      {"imatrix.datasets", GgufType::kString, importance.texts},
      {"imatrix.chunk_count", GgufType::kU32, importance.num_chunks},
      {"imatrix.chunk_size", GgufType::kU32, importance.chunk_size},
  };
  std::vector<io::TensorSpec> specs;
  std::vector<at::Tensor> numbers;
  const auto add = [&](const std::string& name, const at::Tensor& values) {
    numbers.push_back(values.to(at::kFloat).contiguous());
    specs.push_back({name, io::Dtype::kF32, numbers.back().sizes().vec()});
  };
  for (const auto& [name, statistics] : importance.tensors) {
    add(name + std::string(kSquares), statistics.squares);
    add(name + std::string(kCounts), statistics.counts.reshape({-1, 1}));
    if (statistics.products.defined()) add(name + std::string(kProducts), statistics.products);
  }
  io::GgufWriter writer(path, keys, specs);
  for (const at::Tensor& values : numbers) {
    writer.write({static_cast<const std::byte*>(values.const_data_ptr()), values.nbytes()});
  }
  writer.commit();
}

}  // namespace weft::models
