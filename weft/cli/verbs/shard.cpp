#include "weft/cli/output.h"
#include "weft/cli/progress.h"
#include "weft/cli/streams.h"
#include "weft/cli/verbs/run.h"
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

constexpr double kMegabyte = 1e6;

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

int run_shard(const ShardOptions& options) {
  if (!options.emits_info) {
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
