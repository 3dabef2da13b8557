#include "weft/cli/output.h"
#include "weft/cli/progress.h"
#include "weft/cli/session.h"
#include "weft/cli/verbs.h"
#include "weft/core/error.h"
#include "weft/core/files/atomic_folder.h"
#include "weft/io/shard_folder.h"
#include "weft/io/shard_info/recut.h"
#include "weft/io/tensor_folder_writer.h"
#include "weft/models/config/sources.h"
#include "weft/models/registry.h"

namespace weft::cli {
namespace {

using core::check;
using core::ConfigError;

constexpr int64_t kMaxPieces = 1024;
constexpr double kMegabyte = 1e6;
constexpr char kAboutShard[] =
    "Writes a safetensors model cut for --tp ranks: a file per rank, with how it was cut in its "
    "metadata. MODEL may be whole or pre-sharded for any number of ranks; --tp 1 joins it to whole "
    "tensors again.";

struct ShardOptions {
  std::string model;
  std::string shard_info;
  int64_t num_ranks = 0;
  bool emits_info = false;
  OutputFlags output;
};

// What cuts the model: the flag's file, what a pre-sharded model says itself, or the family's
// rules.
io::ShardInfo find_info(const io::TensorFile& file, const ShardOptions& options) {
  if (!options.shard_info.empty()) return io::ShardInfo::read(options.shard_info);
  if (auto cut = io::read_cut_checkpoint(file)) return std::move(cut->info);
  const models::ModelConfig config = models::read_config(file);
  return models::shard_info(file, models::find_family(config.family).rules(config, file));
}

void write(const io::TensorFile& file, const ShardOptions& options) {
  check<ConfigError>(!file.is_gguf(), file.path(),
                     ": a GGUF file, expected safetensors; `weft convert` it first");
  const io::ShardInfo info = find_info(file, options);
  core::AtomicFolder folder(options.output.out, options.output.force, kModelMarker);
  io::copy_model_files(models::folder_of(file), folder.temporary_path());
  io::ShardFolderOptions shard_options;
  shard_options.num_ranks = options.num_ranks;
  shard_options.max_file_bytes = options.output.max_file_bytes;
  ProgressBar bar("writing", "MB", kMegabyte, true);
  io::write_shards(file, info, io::FunctionTable(), shard_options, folder.temporary_path(),
                   [&](uint64_t done, uint64_t total) { bar.show(done, total); });
  folder.commit();
}

}  // namespace

int run_shard(const Args& args) {
  CLI::App app(kAboutShard, "shard");
  ShardOptions options;
  app.add_option("model,-m,--model", options.model, "a folder or a .safetensors file");
  add_output_flags(app, options.output);
  app.add_option("--tp,--tensor-parallel-size", options.num_ranks, "ranks to cut for; 1: whole")
      ->check(whole_number(1, kMaxPieces));
  app.add_option("--shard-info", options.shard_info,
                 "how to cut: weft's, TVM's or MLC's shard_info.json (default: the model's own)");
  app.add_flag("--emit-info", options.emits_info,
               "print MODEL's shard_info.json, for any number of ranks, and write nothing");
  if (!parse_flags(app, args)) return 0;
  const auto need = [](bool is_there, const char* flag) {
    check<ConfigError>(is_there, "shard: ", flag, " is required");
  };
  need(!options.model.empty(), "MODEL");
  if (!options.emits_info) {
    need(!options.output.out.empty(), "OUT");
    need(options.num_ranks > 0, "--tp");
    core::check_output_folder(options.output.out, options.output.force, kModelMarker);
  }
  const auto file = io::TensorFile::open(options.model);
  if (!options.emits_info) {
    write(*file, options);
    return 0;
  }
  TextOutput().write(io::to_json(models::with_patterns(find_info(*file, options))) + "\n");
  return 0;
}

}  // namespace weft::cli
