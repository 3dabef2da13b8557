#include "weft/cli/output.h"
#include "weft/cli/session.h"
#include "weft/cli/verbs.h"
#include "weft/core/atomic_folder.h"
#include "weft/core/error.h"
#include "weft/io/shard_folder.h"
#include "weft/io/tensor_folder_writer.h"
#include "weft/io/views/recut.h"
#include "weft/models/sources.h"

namespace weft::cli {
namespace {

using core::check;
using core::ConfigError;

constexpr int64_t kMaxPieces = 1024;
constexpr char kAbout[] =
    "Writes a safetensors model cut for --tp ranks: a file per rank, with how it was cut in its "
    "metadata. MODEL may be whole or pre-sharded for any number of ranks; --tp 1 joins it to whole "
    "tensors again.";

struct Options {
  std::string model;
  std::string shard_info;
  int64_t num_ranks = 0;
  OutputFlags output;
};

// What cuts the model: the flag's file, else what a pre-sharded model says itself.
io::ShardInfo find_info(const io::TensorFile& file, const Options& options) {
  if (!options.shard_info.empty()) return io::ShardInfo::read(options.shard_info);
  const auto cut = io::read_cut_checkpoint(file);
  check<ConfigError>(cut.has_value(), file.path(),
                     ": nothing says how to cut it; give --shard-info FILE");
  return cut->info;
}

void write(const Options& options) {
  const auto file = io::TensorFile::open(options.model);
  check<ConfigError>(!file->is_gguf(), file->path(),
                     ": a GGUF file, expected safetensors; `weft convert` it first");
  const io::ShardInfo info = find_info(*file, options);
  core::AtomicFolder folder(options.output.out, options.output.force, kModelMarker);
  io::copy_model_files(models::folder_of(*file), folder.temporary_path());
  io::ShardFolderOptions shard_options;
  shard_options.num_ranks = options.num_ranks;
  shard_options.max_file_bytes = options.output.max_file_bytes;
  WriteMeter meter;
  io::write_shards(*file, info, io::FunctionTable(), shard_options, folder.temporary_path(),
                   [&](uint64_t done, uint64_t total) { meter.show(done, total); });
  folder.commit();
}

}  // namespace

int run_shard(const Args& args) {
  CLI::App app(kAbout, "shard");
  Options options;
  app.add_option("model,-m,--model", options.model, "a folder or a .safetensors file");
  add_output_flags(app, options.output);
  app.add_option("--tp,--tensor-parallel-size", options.num_ranks, "ranks to cut for; 1: whole")
      ->check(whole_number(1, kMaxPieces));
  app.add_option("--shard-info", options.shard_info,
                 "how to cut: weft's, TVM's or MLC's shard_info.json (default: the model's own)");
  if (!parse_flags(app, args, {"--model", "--out", "--tp"})) return 0;
  core::check_output_folder(options.output.out, options.output.force, kModelMarker);
  write(options);
  return 0;
}

}  // namespace weft::cli
