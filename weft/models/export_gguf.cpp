#include "weft/models/export_gguf.h"

#include <array>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "weft/core/error.h"
#include "weft/io/write_gguf.h"
#include "weft/models/decoder/decoder_names.h"
#include "weft/models/export_types.h"
#include "weft/models/load.h"
#include "weft/models/sources.h"
#include "weft/quant/affine.h"
#include "weft/text/tokenizer_json/gguf_vocabulary.h"
#include "weft/text/tokenizer_json/tokenizer_folder.h"

namespace weft::models {
namespace {

using core::check;
using core::ConfigError;
using io::GgufKey;
using io::GgufType;

// GGUF's names by the model's, without ".weight" or ".bias".
using Names = std::map<std::string, std::string>;

Names names_of(const ModelConfig& config) {
  constexpr std::array kWhole = {Part::kEmbedding, Part::kFinalNorm, Part::kHead};
  constexpr std::array kOfLayer = {
      Part::kInputNorm, Part::kFfnNorm, Part::kQuery, Part::kKey, Part::kValue, Part::kOutput,
      Part::kQueryNorm, Part::kKeyNorm, Part::kGate,  Part::kUp,  Part::kDown};
  Names names;
  for (const Part part : kWhole) names[model_name(config, {part})] = gguf_name({part});
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    for (const Part part : kOfLayer) {
      names[model_name(config, {part, layer})] = gguf_name({part, layer});
    }
  }
  return names;
}

std::string file_name(const Names& names, const std::string& name) {
  const size_t dot = name.rfind('.');
  const auto found = names.find(name.substr(0, dot));
  check<ConfigError>(found != names.end(), "models.export_gguf: ", core::quote(name),
                     " has no name in GGUF");
  return found->second + name.substr(dot);
}

// Families that GGUF keeps under another architecture's name.
std::string architecture_of(const std::string& family, const std::string& where) {
  if (family == "llama" || family == "mistral") return "llama";
  check<ConfigError>(family == "qwen2" || family == "qwen3", where, ": the family ",
                     core::quote(family), " can't be written as GGUF");
  return family;
}

class Keys {
 public:
  explicit Keys(std::string architecture) : architecture_(std::move(architecture)) {}

  void text(const std::string& name, const std::string& value) {
    list_.push_back({name, GgufType::kString, value});
  }
  void number(const std::string& name, int64_t value) {
    list_.push_back({name, GgufType::kU32, value});
  }
  void real(const std::string& name, double value) {
    list_.push_back({name, GgufType::kF32, value});
  }
  void flag(const std::string& name, bool value) {
    list_.push_back({name, GgufType::kBool, value});
  }
  void add(GgufKey key) { list_.push_back(std::move(key)); }
  std::string own(const char* name) const { return architecture_ + "." + name; }
  std::vector<GgufKey> take() { return std::move(list_); }

 private:
  std::string architecture_;
  std::vector<GgufKey> list_;
};

// llama_token_type of the GGUF specification.
int64_t token_type(text::TokenKind kind) {
  switch (kind) {
    case text::TokenKind::kUnknown:
      return 2;
    case text::TokenKind::kControl:
      return 3;
    case text::TokenKind::kUserDefined:
      return 4;
    case text::TokenKind::kUnused:
      return 5;
    case text::TokenKind::kByte:
      return 6;
    default:
      return 1;
  }
}

void add_tokenizer(const text::Vocabulary& vocabulary, int64_t vocab_size, Keys& keys) {
  std::vector<std::string> tokens = vocabulary.tokens;
  std::vector<int64_t> types;
  for (const text::TokenKind kind : vocabulary.kinds) types.push_back(token_type(kind));
  // Rows of the embedding without a token get one that nothing makes.
  while (static_cast<int64_t>(tokens.size()) < vocab_size) {
    tokens.push_back(core::join("[PAD", tokens.size(), "]"));
    types.push_back(token_type(text::TokenKind::kUnused));
  }
  keys.text("tokenizer.ggml.model", vocabulary.model);
  keys.text("tokenizer.ggml.pre", vocabulary.pre_tokenizer);
  keys.add({"tokenizer.ggml.tokens", GgufType::kString, std::move(tokens)});
  keys.add({"tokenizer.ggml.token_type", GgufType::kI32, std::move(types)});
  keys.add({"tokenizer.ggml.merges", GgufType::kString, vocabulary.merges});
  if (vocabulary.bos >= 0) keys.number("tokenizer.ggml.bos_token_id", vocabulary.bos);
  if (vocabulary.eos >= 0) keys.number("tokenizer.ggml.eos_token_id", vocabulary.eos);
  if (vocabulary.unknown >= 0) keys.number("tokenizer.ggml.unknown_token_id", vocabulary.unknown);
  keys.flag("tokenizer.ggml.add_bos_token", vocabulary.add_bos);
  keys.flag("tokenizer.ggml.add_eos_token", vocabulary.add_eos);
}

void add_sizes(const ModelConfig& config, Keys& keys) {
  keys.number(keys.own("context_length"), config.max_positions);
  keys.number(keys.own("embedding_length"), config.width);
  keys.number(keys.own("block_count"), config.num_layers);
  keys.number(keys.own("feed_forward_length"), config.ffn_width);
  keys.number(keys.own("attention.head_count"), config.num_heads);
  keys.number(keys.own("attention.head_count_kv"), config.num_kv_heads);
  keys.number(keys.own("attention.key_length"), config.head_dim);
  keys.number(keys.own("attention.value_length"), config.head_dim);
  keys.number(keys.own("rope.dimension_count"), config.head_dim);
  keys.number(keys.own("vocab_size"), config.vocab_size);
  keys.real(keys.own("attention.layer_norm_rms_epsilon"), config.norm_eps);
  keys.real(keys.own("rope.freq_base"), config.rope_base);
}

// How one weight is written.
struct Output {
  const PlannedWeight* weight = nullptr;
  io::TensorSpec spec;
  at::ScalarType type = at::kFloat;
  /// Heads whose rows GGUF's "llama" keeps in pairs; 0: rows stay.
  int64_t paired_heads = 0;
};

int64_t paired_heads(const std::string& name, const ModelConfig& config,
                     const std::string& architecture) {
  if (architecture != "llama") return 0;
  if (name.find(".q_proj.") != std::string::npos) return config.num_heads;
  return name.find(".k_proj.") != std::string::npos ? config.num_kv_heads : 0;
}

// Rows of each head from halves to pairs, for GGUF's own rope.
at::Tensor with_pairs(const at::Tensor& rows, int64_t heads) {
  if (heads == 0) return rows;
  const int64_t half = rows.size(0) / heads / 2;
  return rows.reshape({heads, 2, half, -1}).transpose(1, 2).reshape(rows.sizes()).contiguous();
}

at::Tensor load_whole(const io::TensorFile& file, const LoadPlan& plan, const Output& output) {
  const PlannedWeight& weight = *output.weight;
  if (weight.rule.is_vector()) {
    return io::load_tensor(file, plan.recipe(weight, 0, 0), output.type);
  }
  const io::MatrixSlice wanted = plan.slice(weight, 0);
  io::MatrixSource source{weight.format, {}, wanted};
  for (size_t i = 0; i < weight.parts.size(); ++i)
    source.parts.push_back(&plan.recipe(weight, i, 0));
  io::LoadedMatrix loaded = io::load_matrix(file, source, at::kFloat);
  if (auto* dense = std::get_if<at::Tensor>(&loaded)) return *dense;
  return quant::dequantize(std::get<quant::QuantizedMatrix>(loaded), at::kFloat);
}

std::vector<Output> choose_outputs(const LoadPlan& plan, std::optional<at::ScalarType> dtype,
                                   const ModelConfig& config, const std::string& architecture) {
  std::vector<Output> outputs;
  const Names names = names_of(config);
  for (const PlannedWeight& weight : plan.weights()) {
    Output& output = outputs.emplace_back();
    output.weight = &weight;
    const bool is_vector = weight.rule.is_vector();
    const bool is_dense = weight.format.kind == io::MatrixKind::kDense;
    const at::ScalarType stored =
        is_dense ? torch_type(plan.recipe(weight, 0, 0).result.dtype()) : at::kHalf;
    output.type = is_vector ? at::kFloat : dtype.value_or(stored);
    output.spec.name = file_name(names, weight.rule.name);
    output.spec.dtype = file_type(output.type);
    output.spec.shape = {weight.rule.out, weight.rule.in};
    if (is_vector) output.spec.shape = {weight.rule.in};
    output.paired_heads = paired_heads(weight.rule.name, config, architecture);
  }
  return outputs;
}

std::vector<GgufKey> make_keys(const io::TensorFile& file, const ModelConfig& config,
                               const std::string& architecture) {
  Keys keys(architecture);
  keys.text("general.architecture", architecture);
  keys.text("general.name", std::filesystem::path(folder_of(file)).filename().string());
  add_sizes(config, keys);
  add_tokenizer(text::read_gguf_vocabulary(folder_of(file)), config.vocab_size, keys);
  const auto templates = text::read_tokenizer_folder(folder_of(file)).chat_templates;
  const auto usual = templates.find("default");
  if (usual != templates.end()) keys.text("tokenizer.chat_template", usual->second);
  return keys.take();
}

}  // namespace

void export_gguf(const io::TensorFile& file, std::optional<at::ScalarType> dtype,
                 const std::string& path, const ExportProgress& progress) {
  check<ConfigError>(!file.is_gguf(), file.path(),
                     ": a GGUF file already; convert it to a folder first");
  const ModelConfig config = read_config(file);
  const std::string architecture = architecture_of(config.family, file.path());
  check<ConfigError>(config.rope_scaling == nn::RopeScaling() && config.windows.empty(),
                     file.path(), ": rope scaling and windows can't be written as GGUF here");
  const LoadPlan plan = make_plan(file, 1);
  const std::vector<Output> outputs = choose_outputs(plan, dtype, config, architecture);
  std::vector<io::TensorSpec> specs;
  for (const Output& output : outputs) specs.push_back(output.spec);
  io::GgufWriter writer(path, make_keys(file, config, architecture), specs);
  uint64_t done = 0;
  for (const Output& output : outputs) {
    const at::Tensor rows = with_pairs(load_whole(file, plan, output), output.paired_heads);
    writer.write(bytes_of(converted(rows, output.type, output.weight->rule.name)));
    done += plan.planned_bytes(*output.weight, 0);
    progress(done, plan.params().planned_bytes(0));
  }
  writer.commit();
}

}  // namespace weft::models
