#include "weft/io/tensor_cache.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "weft/core/error.h"
#include "weft/io/formats/header_checks.h"
#include "weft/io/shard_info/shard_info.h"
#include "weft/io/tensor_file_builder.h"

namespace weft::io {

using core::check;
using core::fail;
using core::FormatError;
using core::Json;
using core::quote;

namespace {

constexpr const char* kRemedy = "; fetch or convert the model again";

std::string text_at(const Json& object, const char* key, const std::string& where) {
  return core::to_string(core::require(object, key, where), core::join(where, ": ", key));
}

uint64_t size_at(const Json& object, const char* key, const std::string& where) {
  return core::to_uint64(core::require(object, key, where), core::join(where, ": ", key));
}

const Json& list_at(const Json& object, const char* key, const std::string& where) {
  const Json& list = core::require(object, key, where);
  check<FormatError>(list.is_array(), where, ": ", key, ": expected a list, got ",
                     list.type_name());
  return list;
}

// The type in the file: "f32-to-bf16" names float32 for tensors that are stored as bfloat16.
Dtype read_stored_dtype(const Json& record, const std::string& where) {
  const std::string name = text_at(record, "dtype", where);
  const std::string format = text_at(record, "format", where);
  const auto dtype = dtype_from_text(name);
  if (!dtype) {
    fail<FormatError>(where, ": unknown type ", quote(name), ", expected one such as 'float16'");
  }
  if (format == "raw") return *dtype;
  check<FormatError>(format == "f32-to-bf16", where, ": format ", quote(format),
                     ", expected 'raw' or 'f32-to-bf16'");
  check<FormatError>(dtype == Dtype::kF32, where, ": f32-to-bf16 of ", quote(name),
                     ", expected 'float32'", kRemedy);
  return Dtype::kBF16;
}

std::vector<int64_t> read_sizes(const Json& record, const std::string& where) {
  std::vector<int64_t> shape;
  for (const Json& size : list_at(record, "shape", where)) {
    shape.push_back(core::to_int64(size, core::join(where, ": shape")));
    check<FormatError>(shape.back() >= 0, where, ": shape: size ", shape.back(),
                       ", expected at least 0", kRemedy);
  }
  return shape;
}

TensorMeta read_tensor(const Json& record, const std::string& file_where, uint64_t expected) {
  TensorMeta tensor;
  tensor.name = text_at(record, "name", file_where);
  check_tensor_name(file_where, tensor.name);
  const std::string where = core::join(file_where, ": tensor ", quote(tensor.name));
  tensor.dtype = read_stored_dtype(record, where);
  tensor.shape = read_sizes(record, where);
  tensor.offset = size_at(record, "byteOffset", where);
  tensor.num_bytes = size_at(record, "nbytes", where);
  const auto bytes = tensor_bytes(tensor.dtype, tensor.shape);
  check<FormatError>(bytes.has_value(), where, ": the size of ", info(tensor.dtype).name, " ",
                     core::list_text(tensor.shape), " does not fit in 63 bits", kRemedy);
  check<FormatError>(tensor.num_bytes == *bytes, where, ": nbytes ", tensor.num_bytes,
                     ", expected ", *bytes, " for ", info(tensor.dtype).name, " ",
                     core::list_text(tensor.shape), kRemedy);
  check<FormatError>(tensor.offset == expected, where, ": byteOffset ", tensor.offset,
                     tensor.offset < expected ? " overlaps" : " leaves a hole", ", expected ",
                     expected, kRemedy);
  return tensor;
}

void add_record(const std::string& cache_path, const Json& record, TensorFileBuilder& builder) {
  const std::string name = text_at(record, "dataPath", cache_path);
  const std::string where = core::join(cache_path, ": file ", quote(name));
  check_file_name(where, name);
  const std::string format = text_at(record, "format", where);
  check<FormatError>(format == "raw-shard", where, ": format ", quote(format),
                     ", expected 'raw-shard'", kRemedy);
  const std::string file = (std::filesystem::path(cache_path).parent_path() / name).string();
  std::error_code error;
  check<FormatError>(std::filesystem::exists(file, error), where,
                     ": is missing; fetch all files of the model");
  const uint64_t size = builder.add_raw_file(file);
  const uint64_t listed = size_at(record, "nbytes", where);
  check<FormatError>(listed == size, where, ": nbytes ", listed, ", the file has ", size, " bytes",
                     kRemedy);
  uint64_t expected = 0;
  std::vector<TensorMeta> tensors;
  for (const Json& tensor : list_at(record, "records", where)) {
    tensors.push_back(read_tensor(tensor, where, expected));
    const uint64_t have = size - expected;
    check<FormatError>(tensors.back().num_bytes <= have, where, ": tensor ",
                       quote(tensors.back().name), " at byte ", expected, ": truncated: need ",
                       tensors.back().num_bytes, " bytes, have ", have, kRemedy);
    expected += tensors.back().num_bytes;
  }
  check<FormatError>(expected == size, where, ": ", size - expected,
                     " bytes after the last tensor's end at byte ", expected, ", expected none",
                     kRemedy);
  builder.add_raw_tensors(std::move(tensors));
}

}  // namespace

std::shared_ptr<const TensorFile> open_tensor_cache(const std::string& path,
                                                    const std::string& cache_path,
                                                    const Json& cache) {
  const Json& records = list_at(cache, "records", cache_path);
  check<FormatError>(!records.empty(), cache_path, ": records: expected files, got none", kRemedy);
  TensorFileBuilder builder(path);
  std::set<std::string> names;
  for (const Json& record : records) {
    const std::string name = text_at(record, "dataPath", cache_path);
    check<FormatError>(names.insert(name).second, cache_path, ": file ", quote(name),
                       " is listed twice, expected unique names", kRemedy);
    add_record(cache_path, record, builder);
  }
  return builder.finish();
}

}  // namespace weft::io
