#include "weft/io/formats/write_gguf.h"

#include <algorithm>
#include <set>

#include "weft/core/error.h"
#include "weft/core/hash.h"
#include "weft/io/formats/header_checks.h"

namespace weft::io {

using core::check;
using core::ConfigError;
using core::quote;

namespace {

constexpr uint64_t kAlignment = 32;
constexpr size_t kMaxGgufName = 63;
constexpr size_t kMaxGgufDims = 4;

uint64_t padded(uint64_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

template <class T>
void append(std::string& out, T number) {
  out.append(reinterpret_cast<const char*>(&number), sizeof number);
}

void append_text(std::string& out, const std::string& text) {
  append(out, static_cast<uint64_t>(text.size()));
  out += text;
}

template <class T>
void append_number(std::string& out, GgufType type, T value, const std::string& where) {
  switch (type) {
    case GgufType::kU32:
      return append(out, static_cast<uint32_t>(value));
    case GgufType::kI32:
      return append(out, static_cast<int32_t>(value));
    case GgufType::kF32:
      return append(out, static_cast<float>(value));
    case GgufType::kBool:
      return append(out, static_cast<uint8_t>(value ? 1 : 0));
    default:
      core::fail<core::InternalError>(where, ": a number as GGUF type ",
                                      static_cast<uint32_t>(type));
  }
}

struct ValueWriter {
  std::string& out;
  GgufType type;
  const std::string& where;

  void operator()(const std::string& text) const { append_text(out, text); }
  template <class T>
  void operator()(const T& number) const {
    append_number(out, type, number, where);
  }
  template <class T>
  void operator()(const std::vector<T>& list) const {
    append(out, static_cast<uint32_t>(type));
    append(out, static_cast<uint64_t>(list.size()));
    for (const T& item : list) (*this)(item);
  }
};

bool is_array(const MetaValue& value) {
  return std::visit(
      [](const auto& held) {
        using Held = std::decay_t<decltype(held)>;
        return !std::is_arithmetic_v<Held> && !std::is_same_v<Held, std::string>;
      },
      value);
}

void append_key(std::string& out, const GgufKey& key, const std::string& path) {
  const std::string where = core::join(path, ": key ", quote(key.name));
  append_text(out, key.name);
  append(out, static_cast<uint32_t>(is_array(key.value) ? GgufType::kArray : key.type));
  std::visit(ValueWriter{out, key.type, where}, key.value);
}

uint32_t type_number(Dtype dtype, const std::string& where) {
  const DtypeInfo& type = info(dtype);
  check<ConfigError>(type.gguf != core::kNotInGguf, where, ": ", type.name,
                     ", expected a type that GGUF has; convert it first");
  return static_cast<uint32_t>(type.gguf);
}

uint64_t checked_size(const TensorSpec& tensor, const std::string& where) {
  const auto bytes = tensor_bytes(tensor.dtype, tensor.shape);
  const bool is_legal = bytes && !tensor.shape.empty() && tensor.shape.size() <= kMaxGgufDims &&
                        !tensor.name.empty() && tensor.name.size() <= kMaxGgufName;
  check<ConfigError>(is_legal, where, ": ", core::list_text(tensor.shape),
                     ", expected 1 to 4 dims and a name of 1 to ", kMaxGgufName, " bytes");
  return *bytes;
}

std::string header(const std::string& path, const std::vector<GgufKey>& keys,
                   const std::vector<TensorSpec>& tensors) {
  std::string out = "GGUF";
  append(out, uint32_t{3});
  append(out, static_cast<uint64_t>(tensors.size()));
  append(out, static_cast<uint64_t>(keys.size()));
  for (const GgufKey& key : keys) append_key(out, key, path);
  uint64_t offset = 0;
  std::set<std::string_view> names;
  for (const TensorSpec& tensor : tensors) {
    const std::string where = core::join(path, ": tensor ", quote(tensor.name));
    const uint64_t bytes = checked_size(tensor, where);
    check<ConfigError>(names.insert(tensor.name).second, where, " is given twice; rename one");
    append_text(out, tensor.name);
    append(out, static_cast<uint32_t>(tensor.shape.size()));
    for (auto dim = tensor.shape.rbegin(); dim != tensor.shape.rend(); ++dim) append(out, *dim);
    append(out, type_number(tensor.dtype, where));
    append(out, offset);
    offset += padded(bytes);
  }
  out.resize(padded(out.size()), '\0');
  return out;
}

uint64_t data_bytes(const std::vector<TensorSpec>& tensors) {
  uint64_t sum = 0;
  for (const TensorSpec& tensor : tensors) {
    sum += padded(tensor_bytes(tensor.dtype, tensor.shape).value_or(0));
  }
  return sum;
}

uint64_t hash_of(const TensorFile& file, const TensorMeta& tensor) {
  constexpr uint64_t kPiece = uint64_t{4} << 20;
  std::vector<std::byte> buffer(std::min(kPiece, tensor.num_bytes));
  uint64_t hash = core::hash_bytes({});
  for (uint64_t at = 0; at < tensor.num_bytes; at += kPiece) {
    const auto piece = std::span(buffer).first(std::min(kPiece, tensor.num_bytes - at));
    file.read_at(tensor.file, tensor.offset + at, piece);
    hash = core::hash_bytes(piece, hash);
  }
  return hash;
}

}  // namespace

GgufWriter::GgufWriter(const std::string& path, const std::vector<GgufKey>& keys,
                       std::vector<TensorSpec> tensors)
    : path_(path), tensors_(std::move(tensors)), file_(path, data_bytes(tensors_)) {
  const std::string text = header(path, keys, tensors_);
  file_.write(std::as_bytes(std::span(text)));
}

void GgufWriter::write(std::span<const std::byte> bytes) {
  check<core::InternalError>(hashes_.size() < tensors_.size(), path_, ": a tensor too many");
  const TensorSpec& tensor = tensors_[hashes_.size()];
  const uint64_t size = tensor_bytes(tensor.dtype, tensor.shape).value_or(0);
  check<core::InternalError>(bytes.size() <= size - done_bytes_, path_, ": tensor ",
                             quote(tensor.name), ": ", bytes.size(), " bytes behind ", done_bytes_,
                             " for ", core::list_text(tensor.shape));
  file_.write(bytes);
  hash_.add(bytes);
  done_bytes_ += bytes.size();
  if (done_bytes_ < size) return;
  const std::string padding(padded(size) - size, '\0');
  file_.write(std::as_bytes(std::span(padding)));
  hashes_.push_back(hash_.value());
  hash_ = {};
  done_bytes_ = 0;
}

void GgufWriter::commit() {
  check<core::InternalError>(hashes_.size() == tensors_.size(), path_, ": ", hashes_.size(), " of ",
                             tensors_.size(), " tensors written");
  file_.commit();
  const auto written = TensorFile::open(path_);
  check<core::IoError>(written->tensors().size() == tensors_.size(), path_, ": ",
                       written->tensors().size(), " tensors, expected ", tensors_.size());
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const TensorMeta& meta = written->require(tensors_[i].name);
    check<core::IoError>(meta.dtype == tensors_[i].dtype && meta.shape == tensors_[i].shape &&
                             hash_of(*written, meta) == hashes_[i],
                         path_, ": tensor ", quote(meta.name),
                         " is not what was written; check the disk and write it again");
  }
}

}  // namespace weft::io
