#include <algorithm>
#include <filesystem>

#include "weft/cli/cut/cut_rules.h"
#include "weft/cli/output.h"
#include "weft/cli/progress.h"
#include "weft/cli/streams.h"
#include "weft/cli/verbs/run.h"
#include "weft/core/error.h"
#include "weft/core/files/atomic_folder.h"
#include "weft/io/check_finite.h"
#include "weft/io/shard_folder.h"
#include "weft/io/tensor_folder_writer.h"
#include "weft/models/config/sources.h"
#include "weft/models/load/weight_rules.h"

namespace weft::cli {
namespace {

using core::check;
using core::ConfigError;

constexpr double kMegabyte = 1e6;

// A set of tensors that is no model has no config.json to know its folder by.
core::ReplaceableFolder shards_folder(const std::string& out) {
  core::ReplaceableFolder kind = model_folder();
  for (const char* marker : {"model.safetensors", "model.safetensors.index.json"}) {
    if (std::filesystem::exists(std::filesystem::path(out) / marker)) kind.marker = marker;
  }
  return kind;
}

// Matrices whose parts no reader finds again in pieces; empty: there are none.
std::string whole_matrices(const io::TensorFile& file) {
  for (const io::TensorMeta& tensor : file.tensors()) {
    if (tensor.dtype == io::Dtype::kF8E4M3) return "F8_E4M3";
    if (tensor.name.ends_with(".qweight")) return "AWQ or GPTQ";
    const std::string base = tensor.name.substr(0, tensor.name.rfind('.') + 1);
    if (tensor.name.ends_with(".weight.quant_map") || file.find(base + "SCB") != nullptr) {
      return "bitsandbytes";
    }
    if (tensor.name.ends_with(".weight_packed") || tensor.dtype == io::Dtype::kI8) {
      return "compressed-tensors' integers";
    }
  }
  return "";
}

// Everything that is read.
Inputs inputs_of(const CutOptions& cut) {
  Inputs inputs = cut.tensors;
  for (const std::string& path : {cut.model, cut.shard_info, cut.functions}) inputs.push_back(path);
  return inputs;
}

void write(const io::TensorFile& file, const ShardOptions& options) {
  const bool is_model = options.cut.tensors.empty() && has_config(file);
  check<ConfigError>(
      !file.is_gguf() || !options.cut.shard_info.empty(), file.path(),
      ": a GGUF file, expected safetensors; `weft convert` it first, or give rules for "
      "its tensors by --shard-info");
  const std::string kept_whole = is_model ? whole_matrices(file) : "";
  check<ConfigError>(kept_whole.empty(), file.path(), ": matrices of ", kept_whole,
                     ", whose groups with a scale pieces would cut, expected plain numbers or "
                     "MLX's; `weft convert` it with `--dtype bf16` first");
  const io::ShardInfo info = find_info(file, options.cut);
  const io::FunctionTable functions = functions_for(file, options.cut.functions);
  check_functions(info, functions);
  io::check_finite(file);
  core::AtomicFolder folder(options.output.out, options.output.force,
                            shards_folder(options.output.out));
  if (is_model && !file.is_gguf()) {
    io::copy_model_files(models::folder_of(file), folder.temporary_path());
  }
  io::ShardFolderOptions shard_options;
  shard_options.num_ranks = options.num_ranks;
  shard_options.max_file_bytes = options.output.max_file_bytes;
  ProgressBar bar("writing", "MB", kMegabyte, true);
  io::write_shards(file, info, functions, shard_options, folder.temporary_path(),
                   [&](uint64_t done, uint64_t total) { bar.show(done, total); });
  folder.commit();
}

}  // namespace

int run_shard(const ShardOptions& options) {
  const OutputOptions& output = options.output;
  if (!options.emits_info) {
    check_new_folder(output, shards_folder(output.out), inputs_of(options.cut));
  }
  const auto file = open_tensors(options.cut);
  if (!options.emits_info) {
    write(*file, options);
    return 0;
  }
  TextOutput().write(io::to_json(models::with_patterns(find_info(*file, options.cut))) + "\n");
  return 0;
}

}  // namespace weft::cli
