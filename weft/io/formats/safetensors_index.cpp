#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "weft/core/error.h"
#include "weft/core/json.h"
#include "weft/core/log.h"
#include "weft/io/formats/header_checks.h"
#include "weft/io/sources.h"
#include "weft/io/tensor_cache.h"
#include "weft/io/tensor_file_builder.h"

namespace weft::io {

using core::check;
using core::fail;
using core::FormatError;
using core::quote;

namespace {

using WeightMap = std::map<std::string, std::string>;

WeightMap read_weight_map(const std::string& path, const core::Json& index) {
  WeightMap files;
  const core::Json& map = core::require(index, "weight_map", path);
  check<FormatError>(map.is_object(), path, ": weight_map: expected an object, got ",
                     map.type_name());
  for (const auto& [tensor, file] : map.items()) {
    const std::string where = path + ": tensor " + quote(tensor);
    files[tensor] = core::to_string(file, where);
    check_file_name(where, files[tensor]);
  }
  check<FormatError>(!files.empty(), path, ": weight_map is empty, expected tensors; correct it");
  return files;
}

void check_listed(const std::string& path, const WeightMap& files,
                  const TensorFileBuilder& builder) {
  std::set<std::string> present;
  for (const TensorMeta& tensor : builder.tensors()) {
    const std::string& file = builder.file_path(tensor.file);
    const std::string name = std::filesystem::path(file).filename().string();
    const auto listed = files.find(tensor.name);
    if (listed == files.end()) {
      fail<FormatError>(path, ": tensor ", quote(tensor.name), " is in ", name,
                        " but not in the index; correct the index");
    }
    if (listed->second != name) {
      fail<FormatError>(path, ": tensor ", quote(tensor.name), " is in ", name, ", expected in ",
                        listed->second, "; correct the index");
    }
    present.insert(tensor.name);
  }
  for (const auto& [tensor, file] : files) {
    if (!present.contains(tensor)) {
      fail<FormatError>(path, ": tensor ", quote(tensor), " is not in ", file,
                        ", where the index has it; fetch the file again or correct the index");
    }
  }
}

void compare_total_size(const std::string& path, const core::Json& index,
                        const TensorFileBuilder& builder) {
  const auto metadata = index.find("metadata");
  if (metadata == index.end() || !metadata->is_object()) return;
  const auto total = metadata->find("total_size");
  if (total == metadata->end()) return;
  uint64_t sum = 0;
  for (const TensorMeta& tensor : builder.tensors()) sum += tensor.num_bytes;
  if (total->is_number() && total->get<double>() == static_cast<double>(sum)) return;
  const std::string said =
      total->is_number() ? total->dump() : core::quote(core::dump_json(*total));
  core::log(core::LogLevel::kWarn, path, ": total_size is ", said, ", the tensors have ", sum,
            " bytes");
}

}  // namespace

std::shared_ptr<const TensorFile> open_index(const std::string& path,
                                             const std::string& index_path) {
  const core::JsonLimits limits;
  const core::Json index =
      core::parse_json(core::read_text_file(index_path, limits.max_bytes), index_path, limits);
  if (index.is_object() && index.contains("records") && !index.contains("weight_map")) {
    return open_tensor_cache(path, index_path, index);
  }
  const WeightMap files = read_weight_map(index_path, index);
  std::set<std::string> names;
  for (const auto& [tensor, file] : files) names.insert(file);
  TensorFileBuilder builder(path);
  const std::filesystem::path folder = std::filesystem::path(index_path).parent_path();
  for (const std::string& name : names) {
    const std::string file = (folder / name).string();
    std::error_code error;
    check<FormatError>(std::filesystem::exists(file, error), index_path, ": file ", quote(name),
                       " is missing; fetch all files of the model");
    builder.add_file(file);
  }
  check_listed(index_path, files, builder);
  compare_total_size(index_path, index, builder);
  return builder.finish();
}

}  // namespace weft::io
