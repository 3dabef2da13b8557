#pragma once

#include <memory>
#include <string>

#include "weft/cli/options.h"
#include "weft/io/shard_info/function_table.h"
#include "weft/io/shard_info/shard_info.h"
#include "weft/io/tensor_file.h"

namespace weft::cli {

/// Opens what is cut: --tensors, several safetensors or GGUF files as one source, else MODEL.
/// Throws as io::TensorFile::open; FormatError for a tensor that stands in two files.
std::shared_ptr<const io::TensorFile> open_tensors(const CutOptions& options);

/// Whether something beside or in `file` says which model it is: config.json, or a GGUF's keys.
bool has_config(const io::TensorFile& file);

/// The functions that rules for `file` may call: weft's own, MLC's with the heads that the model's
/// config says, and those of the file at `path` unless that is empty. Throws as io::read_functions
/// and models::read_head_counts.
io::FunctionTable functions_for(const io::TensorFile& file, const std::string& path);

/// Looks up all functions that `info` calls. Throws ConfigError that names the flag which gives a
/// missing one its name.
void check_functions(const io::ShardInfo& info, const io::FunctionTable& functions);

/// What cuts `file`: the flag's rules, else what a pre-sharded model says of itself, else the
/// family's rules. Throws ConfigError where there is none of these.
io::ShardInfo find_info(const io::TensorFile& file, const CutOptions& options);

}  // namespace weft::cli
