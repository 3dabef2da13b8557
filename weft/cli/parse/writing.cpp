// Flags of the verbs that write a model.
#include "weft/cli/flags.h"
#include "weft/cli/parse/parse.h"
#include "weft/core/error.h"

namespace weft::cli {
namespace {

using core::check;
using core::ConfigError;

constexpr int64_t kMaxPieces = 1024;
constexpr char kAboutConvert[] =
    "Writes a model in another format. OUT that ends in .gguf: a folder's model as GGUF, in plain "
    "numbers. Else a Hugging Face folder: a GGUF's weights under Hugging Face's names and in "
    "its order, with config.json, tokenizer.json and the chat template. GGUF blocks become MLX's "
    "quantized parts with the same values, or with --dtype plain numbers, which transformers "
    "reads. MODEL may be a run of weft train or one of its checkpoints.";
constexpr char kAboutShard[] =
    "Writes safetensors cut for --tp ranks: a file per rank, with how it was cut in its metadata. "
    "MODEL may be whole or pre-sharded for any number of ranks; --tp 1 joins it to whole tensors "
    "again. With --shard-info it may be any set of tensors, which needs no config.json.";

// Beside --tensors the one path on the command line is OUT.
void take_output(ShardOptions& options) {
  if (options.cut.tensors.empty() || !options.output.out.empty()) return;
  options.output.out = std::move(options.cut.model);
  options.cut.model.clear();
}

void check_shard(const ShardOptions& options) {
  const auto need = [](bool is_there, const char* flag) {
    check<ConfigError>(is_there, "shard: ", flag, " is required");
  };
  check_cut_flags(options.cut);
  need(!options.cut.model.empty() || !options.cut.tensors.empty(), "MODEL");
  if (options.emits_info) return;
  need(!options.output.out.empty(), "OUT");
  need(options.num_ranks > 0, "--tp");
}

}  // namespace

std::optional<QuantizeOptions> parse_quantize(const Args& args) {
  CLI::App app(
      "Writes a model with its matrices quantized, as a folder that MLX reads too: all linear "
      "layers, embedding and head; norms and biases stay as they are.",
      "quantize");
  QuantizeOptions options;
  options.model.command = command_of("quantize", args);
  add_model_flags(app, options.model);
  add_output_flags(app, options.output);
  app.add_option("-b,--bits", options.bits, "bits per weight: 2 to 6 or 8 (default: 4)");
  app.add_option("-g,--group-size", options.group_size,
                 "weights that share a scale: 32, 64 or 128 (default: 64)");
  app.add_option(
      "--mode", options.mode,
      "affine (default), mxfp4, mxfp8 or nvfp4, which have bits and groups of their own");
  if (!parse_flags(app, args, {"--model", "--out"})) return std::nullopt;
  return options;
}

std::optional<ConvertOptions> parse_convert(const Args& args) {
  CLI::App app(kAboutConvert, "convert");
  ConvertOptions options;
  options.model.command = command_of("convert", args);
  add_model_flags(app, options.model);
  add_output_flags(app, options.output);
  app.add_option("--dtype", options.dtype,
                 "f32, f16 or bf16: all weights as plain numbers (default: as they are)");
  app.add_flag("--peft", options.is_peft,
               "of a run of weft lora: its adapters as a folder of Hugging Face's peft");
  if (!parse_flags(app, args, {"--model", "--out"})) return std::nullopt;
  return options;
}

std::optional<ShardOptions> parse_shard(const Args& args) {
  CLI::App app(kAboutShard, "shard");
  ShardOptions options;
  add_cut_flags(app, options.cut);
  add_output_flags(app, options.output);
  app.add_option("--tp,--tensor-parallel-size", options.num_ranks, "ranks to cut for; 1: whole")
      ->check(whole_number(1, kMaxPieces));
  app.add_flag("--emit-info", options.emits_info,
               "print MODEL's shard_info.json, for any number of ranks, and write nothing");
  if (!parse_flags(app, args)) return std::nullopt;
  take_output(options);
  check_shard(options);
  return options;
}

std::optional<FuseOptions> parse_fuse(const Args& args) {
  CLI::App app(
      "Writes the model that weft lora has trained: base and adapters in one, as a Hugging Face "
      "folder in plain numbers.",
      "fuse");
  FuseOptions options;
  app.add_option("run", options.run, "the run's folder, or one of its checkpoints");
  add_output_flags(app, options.output);
  app.add_option("--dtype", options.dtype, "f32 or bf16");
  if (!parse_flags(app, args, {"run", "--out"})) return std::nullopt;
  check<ConfigError>(options.dtype == "f32" || options.dtype == "bf16",
                     "--dtype: ", core::quote(options.dtype), ", expected f32 or bf16");
  return options;
}

}  // namespace weft::cli
