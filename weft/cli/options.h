#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/generate/options.h"
#include "weft/serve/load/load_report.h"
#include "weft/train/config/read_config.h"
#include "weft/train/metrics/svg_plot.h"

// What users ask each verb for, as flags.h reads it. No libtorch here: the program `weft` reads
// flags without it.
namespace weft::cli {

using Args = std::vector<std::string>;

/// The activations of verbs that generate: four times as fast as "float" and equal to 1e-4, while
/// "int8" moves near ties.
inline constexpr const char* kFastActivations = "int16";

/// Adapters that requests ask for by a name.
struct NamedAdapter {
  std::string name;
  std::string path;
};

/// MODEL, --tp and how to run: shared by all verbs that take a model.
struct ModelOptions {
  /// A file or folder; empty: as cli::base_path.
  std::string path;
  /// 0: as many as a launcher has started.
  int64_t tp = 0;
  /// Per rank; 0: cores / ranks of this host.
  int64_t threads = 0;
  std::string backend = "auto";
  /// Path of rules for loading; empty: the model's own.
  std::string shard_info;
  /// Path of names for the functions that they call; empty: none (io::read_functions).
  std::string functions;
  /// What activations are multiplied in: "float", or "int8" or "int16" where a weight's form
  /// allows. Verbs that measure numbers leave it, others set kFastActivations before they add the
  /// flags.
  std::string activations = "float";
  /// The same bits on any number of ranks (models::LoadOptions::is_exact).
  bool is_exact = false;
  /// With "float": matrices of float16 and bfloat16 take the file's bytes rather than float32's,
  /// for verbs that measure numbers and read many tokens at once.
  bool halves_as_stored = false;
  /// Of the verbs that take one (cli/verbs/adapter.h); empty: none.
  std::string adapter;
  /// Of the verbs that answer requests; the first one's number is 1 (nn::AdapterScope).
  std::vector<NamedAdapter> named_adapters;
  /// Of the verbs that take one: "cpu" or "cuda".
  std::string device = "cpu";
  /// Of the verbs that take one: "f16" or "f32"; empty: models::CausalLM's own choice.
  std::string cache_type;
  /// "ffn" or "experts".
  std::string expert_split = "ffn";
  /// "even" or "kv".
  std::string head_split = "even";
  /// The verb and its arguments: what ranks that the verb starts run.
  Args command;
};

/// How an answer is generated and shown: shared by chat and generate.
struct AnswerOptions {
  generate::TextOptions text;
  /// A file's path or the schema itself, a file's path, an expression; at most one isn't empty.
  std::string json_schema;
  std::string grammar;
  std::string regex;
  /// As generate::TextGenerator takes it.
  int64_t context = 0;
  /// Print one object in place of text that comes as it is written.
  bool is_json = false;
  bool is_seed_given = false;
  /// The seed was not given, and draws have one, so the user is told which it is.
  bool is_seed_new = false;
};

/// Where a verb writes a model: shared by convert, quantize and shard.
struct OutputOptions {
  std::string out;
  bool force = false;
  /// Most bytes of data per safetensors file.
  uint64_t max_file_bytes = 5'000'000'000;
};

/// weft chat: questions in a model's own chat format.
struct ChatOptions {
  ModelOptions model;
  /// Empty: talk line by line; "-": stdin.
  std::string prompt;
  std::string system;
  /// Files whose text stands for these; empty: none.
  std::string prompt_file;
  std::string system_file;
  AnswerOptions answer;
};

/// weft generate: a text to continue.
struct GenerateVerbOptions {
  ModelOptions model;
  /// "-": stdin.
  std::string prompt;
  /// A file whose text stands for it; empty: none.
  std::string prompt_file;
  AnswerOptions answer;
};

/// weft logits: tokens whose logits are written to a safetensors file.
struct LogitsOptions {
  ModelOptions model;
  std::vector<int64_t> tokens;
  std::string out;
  /// Replace a file that is there.
  bool force = false;
};

/// How verbs that answer many requests run a model: shared by serve and batch.
struct ServedOptions {
  ModelOptions model;
  /// What requests call the model; empty: the name of its file or folder.
  std::string alias;
  /// As generate::TextGenerator takes it.
  int64_t context = 0;
  int64_t slots = 8;
  int64_t max_queue = 128;
  /// 0: room for every sequence's next token, guesses and four pieces of prompts.
  int64_t step_tokens = 0;
  /// As serve::SchedulerOptions::max_slowdown.
  double max_slowdown = 0;
  /// How many tokens are guessed at a time.
  int64_t speculate = 0;
  /// Of all ranks together; 0: no keys and values are kept for other prompts.
  int64_t prefix_cache_mb = 1024;
  /// Of all ranks together, for keys and values of sequences that run; 0: a context for each slot.
  int64_t kv_cache_mb = 0;
  /// How texts become embeddings: "last" or "mean".
  std::string pooling = "last";
};

/// weft serve: where and for whom.
struct ServeVerbOptions : ServedOptions {
  std::string host = "127.0.0.1";
  int64_t port = 8080;
  /// A file with a key in each line; empty: no key is needed.
  std::string api_key_file;
  /// In PEM form; both empty: plain HTTP.
  std::string certificate_file;
  std::string key_file;
  std::vector<std::string> cors_origins;
  /// Without the chat page at /.
  bool has_no_page = false;
  /// A line of JSON for each request rather than words.
  bool logs_json = false;
  /// Further clients wait until one goes.
  int64_t max_connections = 2000;
  /// Start ranks again where one is lost.
  bool restarts = true;
};

/// weft batch: a file of requests, and where their answers go.
struct BatchVerbOptions : ServedOptions {
  /// "-": stdin.
  std::string requests;
  /// Empty: stdout.
  std::string out;
  bool force = false;
  /// Keep the answers that `out` has, and ask the rest.
  bool resumes = false;
  /// Of prompts alone; -1: until the context is full.
  int64_t max_tokens = 256;
  double temperature = 0;
  /// Below 0: none.
  int64_t seed = -1;
};

/// weft bench --url: a server that is measured.
struct BenchLoadOptions {
  /// No url: none is.
  serve::LoadOptions asked;
  serve::LoadLimits limits;
  /// Each in turn, unless there are rates, which are then measured in turn.
  std::vector<int64_t> clients = {1};
  std::vector<double> rates;
  /// The SVG file to draw; empty: none.
  std::string chart;
  bool force = false;
  /// A file with a key; empty: none is sent.
  std::string api_key_file;
};

/// weft bench: how much is measured.
struct BenchOptions {
  ModelOptions model;
  BenchLoadOptions load;
  int64_t prompt_tokens = 512;
  int64_t new_tokens = 128;
  /// Tokens before either.
  int64_t depth = 0;
  int64_t runs = 5;
  int64_t speculate = 0;
  /// Sequences at once; empty: not measured.
  std::vector<int64_t> batches;
  bool is_json = false;
  bool is_profiled = false;
};

/// weft perplexity: the text and how it is scored.
struct PerplexityVerbOptions {
  ModelOptions model;
  std::string file;
  bool is_json = false;
  /// What predictions are compared with: "float", the same model in float32, or another model's
  /// path; empty: nothing.
  std::string against;
  /// A context of 0 is the verb's own choice.
  generate::PerplexityOptions scoring;
};

/// weft quantize: the form of the matrices that are written.
struct QuantizeOptions {
  ModelOptions model;
  /// Of a folder; empty: affine.
  std::string mode;
  /// 0: the mode's own.
  int64_t bits = 0;
  int64_t group_size = 0;
  /// "mlx" or "compressed-tensors"; empty: MLX's.
  std::string format;
  /// Of compressed-tensors: with zero points.
  bool is_asymmetric = false;
  /// "round", "gptq", "awq" or "awq+gptq"; empty: round.
  std::string method;
  /// Of a GGUF file: a mix's name; empty: Q4_K_M.
  std::string type;
  /// A file of importances, of either; empty: none.
  std::string importance;
  /// Types by ggml's names; empty: the mix's.
  std::string embedding_type;
  std::string head_type;
  /// NAME=TYPE.
  std::vector<std::string> tensor_types;
  /// Of all that is written; 0: what the mix, or `bits`, leads to.
  double bits_per_weight = 0;
  OutputOptions output;
};

/// weft imatrix: the text whose activations are counted.
struct ImatrixOptions {
  ModelOptions model;
  std::string text;
  std::string out;
  bool force = false;
  /// Tokens of a chunk; 0: the verb's own choice.
  int64_t context = 0;
  /// 0: all.
  int64_t max_chunks = 0;
  /// Also the products of every two inputs, for rounding with error feedback.
  bool takes_products = false;
};

/// weft convert: the form of the model that is written.
struct ConvertOptions {
  ModelOptions model;
  /// "f32", "f16" or "bf16", or their long names; empty: as in the file.
  std::string dtype;
  bool is_peft = false;
  OutputOptions output;
};

/// Tensors and the rules that cut them: shared by inspect and shard.
struct CutOptions {
  std::string model;
  /// Files in place of `model`; empty: none.
  std::vector<std::string> tensors;
  /// As in ModelOptions.
  std::string shard_info;
  std::string functions;
};

/// weft shard: how a model is cut anew.
struct ShardOptions {
  CutOptions cut;
  int64_t num_ranks = 0;
  bool emits_info = false;
  OutputOptions output;
};

/// weft fuse: the run whose adapters are added to its base.
struct FuseOptions {
  std::string run;
  /// "f32" or "bf16".
  std::string dtype = "f32";
  OutputOptions output;
};

/// weft tokenize: the text and whose tokens.
struct TokenizeOptions {
  std::string model;
  /// "-": stdin.
  std::string prompt;
  /// With what the tokenizer puts around a text, e.g. bos.
  bool adds_special = false;
  bool is_json = false;
};

/// weft inspect: what is shown of a model.
struct InspectOptions {
  CutOptions cut;
  int64_t tp = 1;
  bool is_json = false;
  /// Also what each rank will read.
  bool shows_plan = false;
  std::string expert_split = "ffn";
  std::string head_split = "kv";
};

/// weft doctor: what is checked.
struct DoctorOptions {
  std::string model;
  /// Only sum over the ranks that a launcher has started.
  bool is_rank = false;
  Args command;
};

/// weft completion: for whom.
struct CompletionOptions {
  /// "bash", "zsh" or "man".
  std::string format;
};

/// weft train and weft lora: the run.
struct TrainOptions {
  /// Low-rank adapters beside frozen weights instead of all weights.
  bool trains_adapters = false;
  std::string config_path;
  std::vector<train::GivenValue> given;
  /// Where the run continues: "newest", "auto" or a step; empty: it starts.
  std::string resume;
  /// The verb and its arguments: what ranks that the verb starts run.
  Args command;
};

/// CONFIG and the mesh of a run that is planned, as written; empty: the file's.
struct PlannedRun {
  std::string config;
  std::string replicas, dp, tp, pipe;
};

/// weft plan: the run and the machines it is planned for.
struct PlanOptions {
  PlannedRun run;
  /// 0: the file's own mesh.
  int64_t ranks = 0;
  std::string hardware = "cpu";
  int64_t top = 8;
  bool is_json = false;
};

/// weft plot: the runs and the chart.
struct PlotVerbOptions {
  /// Folders of runs, or their metrics.jsonl.
  std::vector<std::string> runs;
  std::string out;
  /// Replace a file that is there.
  bool force = false;
  int64_t first_step = 1;
  train::PlotOptions plot;
};

}  // namespace weft::cli
