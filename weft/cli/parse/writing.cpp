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

void add_folder_forms(CLI::App& app, QuantizeOptions& options) {
  app.add_option("-b,--bits", options.bits,
                 "bits per weight: 2 to 6 or 8 (default: 4), of compressed-tensors 4 or 8");
  app.add_option("-g,--group-size", options.group_size,
                 "weights that share a scale: 32, 64 or 128 (default: 64)");
  app.add_option(
      "--mode", options.mode,
      "affine (default), mxfp4, mxfp8 or nvfp4, which have bits and groups of their own");
  app.add_option("--format", options.format,
                 "of a folder: mlx (default) or compressed-tensors, for vLLM and transformers");
  app.add_flag("--asymmetric", options.is_asymmetric,
               "of compressed-tensors: quant groups have zero points");
  app.add_option(
      "--method", options.method,
      "of a folder: round (default), as the format's own program does; gptq, which lets later "
      "columns make good earlier ones' errors; awq, which scales columns by their inputs; or "
      "awq+gptq: all but round take --imatrix, gptq one with products");
}

void add_gguf_types(CLI::App& app, QuantizeOptions& options) {
  app.add_option(
      "--type", options.type,
      "of OUT.gguf: Q4_K_M (default), Q4_K_S, Q5_K_M, Q5_K_S, Q6_K, Q8_0, Q3_K_S, Q3_K_M, "
      "Q3_K_L, Q2_K, IQ4_XS, IQ4_NL, Q4_0, Q4_1, Q5_0 or Q5_1");
  app.add_option("--imatrix", options.importance,
                 "a file of weft imatrix or llama-imatrix, which says what errors in each column "
                 "count (default: none)");
  app.add_option(
         "--bits-per-weight", options.bits_per_weight,
         "choose each matrix's type, or of an MLX folder its bits, by what rounding it loses, so "
         "that OUT takes at most this on average (default: as --type or --bits has it)")
      ->check(CLI::Range(2.0, 16.0));
  app.add_option("--token-embedding-type", options.embedding_type,
                 "of OUT.gguf: the embedding's type, e.g. Q8_0 (default: as --type has it)");
  app.add_option("--output-tensor-type", options.head_type,
                 "of OUT.gguf: the head's type (default: as --type has it)");
  app.add_option(
      "--tensor-type", options.tensor_types,
      "of OUT.gguf: NAME=TYPE, the type of tensors in whose names the regular expression "
      "NAME is found, e.g. attn_v=Q6_K; may be given again (default: none)");
}

constexpr char kGgufIsOneFile[] = "a folder: GGUF is one file";

void refuse_beside(const CLI::App& app, const std::string& out, const char* flag,
                   const char* expected) {
  check<ConfigError>(app.count(flag) == 0, flag, ": OUT is ", core::quote(out), ", expected ",
                     expected, "; leave it out");
}

// What a folder has and a GGUF file has not, and the other way round.
void check_form(const CLI::App& app, const std::string& out) {
  const bool is_gguf = out.ends_with(".gguf");
  const auto refuse = [&](const char* flag, const char* expected) {
    refuse_beside(app, out, flag, expected);
  };
  for (const char* flag :
       {"--bits", "--group-size", "--mode", "--format", "--asymmetric", "--method"}) {
    if (is_gguf) refuse(flag, "a folder: the blocks of GGUF follow from --type");
  }
  if (is_gguf) refuse("--max-shard-size", kGgufIsOneFile);
  for (const char* flag :
       {"--type", "--token-embedding-type", "--output-tensor-type", "--tensor-type"}) {
    if (!is_gguf) refuse(flag, "a name that ends in .gguf");
  }
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
      "Writes a model with its matrices quantized: all linear layers, embedding and head; norms "
      "and biases stay as they are. OUT is a folder that MLX reads too or, with --format "
      "compressed-tensors, vLLM; if it ends in .gguf, a file that llama.cpp reads.",
      "quantize");
  QuantizeOptions options;
  options.model.command = command_of("quantize", args);
  add_source_flags(app, options.model);
  add_output_flags(app, options.output);
  add_folder_forms(app, options);
  add_gguf_types(app, options);
  if (!parse_flags(app, args, {"--model", "--out"})) return std::nullopt;
  check_form(app, options.output.out);
  return options;
}

std::optional<ImatrixOptions> parse_imatrix(const Args& args) {
  CLI::App app(
      "Counts how large the inputs of a model's matrices are over a text, for weft quantize "
      "--imatrix and llama-quantize.",
      "imatrix");
  ImatrixOptions options;
  options.model.command = command_of("imatrix", args);
  options.model.halves_as_stored = true;
  add_model_flags(app, options.model);
  app.add_option("-f,--file", options.text, "the text");
  add_file_flags(app, options.out, options.force, "the GGUF file that is written");
  app.add_option("-c,--ctx-size", options.context,
                 "tokens of a chunk, which are read together (default: 512)")
      ->check(whole_number(4, 1 << 20));
  app.add_option("--chunks", options.max_chunks, "chunks that are read (default: all)")
      ->check(whole_number(1, 1 << 30));
  app.add_flag("--products", options.takes_products,
               "also sum the products of every two inputs, with which weft quantize rounds columns "
               "so that later ones make good earlier ones' errors; takes 4 bytes for every two "
               "inputs of each matrix, in memory and in the file");
  if (!parse_flags(app, args, {"--model", "--file", "--out"})) return std::nullopt;
  return options;
}

std::optional<ConvertOptions> parse_convert(const Args& args) {
  CLI::App app(kAboutConvert, "convert");
  ConvertOptions options;
  options.model.command = command_of("convert", args);
  add_source_flags(app, options.model);
  add_output_flags(app, options.output);
  app.add_option("--dtype", options.dtype,
                 "f32, f16 or bf16: all weights as plain numbers (default: as they are)");
  app.add_flag("--peft", options.is_peft,
               "of a run of weft lora: its adapters as a folder of Hugging Face's peft");
  if (!parse_flags(app, args, {"--model", "--out"})) return std::nullopt;
  if (options.output.out.ends_with(".gguf")) {
    refuse_beside(app, options.output.out, "--max-shard-size", kGgufIsOneFile);
  }
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
