#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/io/shard_info/function_table.h"

namespace weft::io {

/// A function applied to a parameter at load.
struct ShardStep {
  std::string function;
  std::vector<Argument> arguments;
  /// What TVM's and MLC's files say about the result, and MLC's about the input; checked.
  std::optional<TensorType> output;
  std::optional<std::vector<int64_t>> input_shape;
};

/// What is done to the parameters that `name` stands for.
struct ParamRule {
  /// A name; each `*` in it is a dotted segment of digits (a layer's number).
  std::string name;
  /// Tensors of the file that it is made of, with the same `*`; empty: the one of its own name.
  std::vector<std::string> from;
  /// What the first source must be, where given.
  std::optional<std::vector<int64_t>> shape;
  std::optional<Dtype> dtype;
  std::vector<ShardStep> steps;
  /// TVM's way: the result of the last step has the shards along dim 0.
  bool is_stacked = false;
};

/// shard_info.json: which functions are applied to which parameter at load.
///
/// weft's form has no number of ranks in it:
///   {"format": "weft.shard_info", "version": 1, "others": "replicate" or "error",
///    "params": {NAME: [[FUNCTION, ARGUMENT…], …] or
///                     {"from": [NAME…], "shape": […], "dtype": "F16", "steps": [[…]…]}}}
/// Read as well, as published: TVM's {NAME: [[FUNCTION, [SHAPE, DTYPE], INTEGER…], …]}, its older
/// {NAME: dim or -1}, its oldest [{"name": NAME, "shard_dim": dim or -1}…], MLC's {NAME:
/// [{"func_name", "in_shape", "out_shape", "out_dtype"}…]} and MLC's whole metadata {"params":
/// [{"name", "preprocs"}…], "tensor_parallel_shards": N}.
struct ShardInfo {
  /// Begins messages: the path.
  std::string where = "shard_info";
  /// In the file's order by name; names differ.
  std::vector<ParamRule> params;
  /// Whether tensors that no rule mentions are held whole by every rank; otherwise they are errors.
  bool replicates_others = true;
  /// Tensors that nobody needs: without a rule of their own they are left unread. Not in the file.
  std::vector<std::string> unread;
  /// Ranks that the file was made for, where it says so.
  std::optional<int64_t> num_ranks;

  /// Reads any of the forms. Nothing is looked up. Throws FormatError: path, parameter, step.
  static ShardInfo parse(std::string_view text, const std::string& where);
  /// The same of a file of at most 100 MB. Also throws IoError.
  static ShardInfo read(const std::string& path);
};

/// weft's form, which parse reads back as it was. Throws ConfigError for rules that it can't say:
/// stacked ones, and what TVM's or MLC's files declare.
std::string to_json(const ShardInfo& info);

/// Type by safetensors' name ("F16") or TVM's ("float16"). Nothing if it is neither.
std::optional<Dtype> dtype_from_text(std::string_view name);

}  // namespace weft::io
