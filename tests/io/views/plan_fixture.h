#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/core/error_text.h"
#include "tests/core/temp_dir.h"
#include "tests/io/views/naive_array.h"
#include "weft/io/formats/write_safetensors.h"
#include "weft/io/views/read_view.h"

namespace weft::testing {

/// A tensor of a test's file.
struct NamedType {
  std::string name;
  io::Dtype dtype = io::Dtype::kF16;
  std::vector<int64_t> shape;
};

/// A safetensors file of random bytes.
class PlanFile {
 public:
  explicit PlanFile(const std::vector<NamedType>& tensors, uint32_t seed = 1) {
    std::mt19937 random(seed);
    std::vector<io::TensorToWrite> list;
    for (const NamedType& tensor : tensors) {
      std::string& bytes = bytes_[tensor.name];
      bytes.resize(tensor_meta("", tensor.dtype, tensor.shape).num_bytes);
      for (char& byte : bytes) byte = static_cast<char>(random());
      list.push_back({tensor.name, tensor.dtype, tensor.shape, std::as_bytes(std::span(bytes))});
    }
    write(list);
  }
  /// A file of the bytes given.
  PlanFile(const std::vector<NamedType>& tensors, std::map<std::string, std::string> bytes)
      : bytes_(std::move(bytes)) {
    std::vector<io::TensorToWrite> list;
    for (const NamedType& tensor : tensors) {
      list.push_back({tensor.name, tensor.dtype, tensor.shape,
                      std::as_bytes(std::span(bytes_.at(tensor.name)))});
    }
    write(list);
  }

  const io::TensorFile& file() const { return *file_; }

  /// The elements of tensor `name` that `array` lists, in its order.
  std::string bytes(const std::string& name, const NaiveArray& array) const {
    const auto size = static_cast<size_t>(io::info(file_->require(name).dtype).block_bytes);
    std::string text;
    for (const int64_t element : array.values) {
      text += bytes_.at(name).substr(static_cast<size_t>(element) * size, size);
    }
    return text;
  }
  const std::string& bytes(const std::string& name) const { return bytes_.at(name); }
  /// The element numbers of a whole tensor.
  NaiveArray whole(const std::string& name) const {
    return NaiveArray::of(file_->require(name).shape);
  }

  io::ShardPlan plan(const std::string& info, int64_t num_ranks,
                     const io::FunctionTable& functions = {}) const {
    return io::ShardPlan::make(*file_, io::ShardInfo::parse(info, "INFO"), num_ranks, functions);
  }
  /// The error of planning, with the file's path written as FILE.
  std::string plan_error(const std::string& info, int64_t num_ranks,
                         const io::FunctionTable& functions = {}) const {
    return replaced(error_text([&] { plan(info, num_ranks, functions); }), file_->path(), "FILE");
  }
  /// A rank's shard.
  std::string read(const io::ShardPlan& plan, const std::string& name, int64_t rank,
                   io::ReadStats* stats = nullptr) const {
    const io::PlannedParam* param = plan.find(name);
    if (param == nullptr) return "no such parameter";
    const io::ShardRecipe& recipe = param->of(rank);
    std::string bytes(recipe.result.num_bytes(), '?');
    io::read_shard(*file_, recipe, std::as_writable_bytes(std::span(bytes)), stats);
    return bytes;
  }

 private:
  void write(const std::vector<io::TensorToWrite>& list) {
    io::write_safetensors(dir_.at("m.safetensors"), list, {});
    file_ = io::TensorFile::open(dir_.at("m.safetensors"));
  }

  TempDir dir_;
  std::map<std::string, std::string> bytes_;
  std::shared_ptr<const io::TensorFile> file_;
};

/// weft's form around `params`.
inline std::string weft_info(const std::string& params) {
  std::string text = R"({"format":"weft.shard_info","version":1,"params":{)";
  return text.append(params).append("}}");
}

}  // namespace weft::testing
