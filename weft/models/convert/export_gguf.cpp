#include "weft/models/convert/export_gguf.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>

#include <filesystem>
#include <map>
#include <utility>
#include <vector>

#include "weft/core/error.h"
#include "weft/io/formats/write_gguf.h"
#include "weft/models/config/config_rope.h"
#include "weft/models/config/families.h"
#include "weft/models/config/sources.h"
#include "weft/models/convert/export_types.h"
#include "weft/models/convert/gguf_model_keys.h"
#include "weft/models/convert/llama3_divisors.h"
#include "weft/models/convert/row_reader.h"
#include "weft/models/decoder/tied_head.h"
#include "weft/models/decoder/weight_table.h"
#include "weft/models/decoder/weights/fused_rows.h"
#include "weft/models/decoder/weights/tiled_heads.h"
#include "weft/models/load/load.h"
#include "weft/text/tokenizer_json/gguf_vocabulary.h"
#include "weft/text/tokenizer_json/tokenizer_folder.h"

namespace weft::models {
namespace {

using core::check;
using core::ConfigError;
using io::GgufKey;
using io::GgufType;

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

void add_tokenizer(const text::Vocabulary& vocabulary, int64_t vocab_size, GgufKeyList& keys) {
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

// One weight that is written to a tensor, or to a part of one (an expert), or some of its rows.
struct Source {
  const PlannedWeight* weight = nullptr;
  /// Heads whose rows GGUF keeps in pairs; 0: rows stay.
  int64_t paired_heads = 0;
  /// What GGUF's numbers are larger by.
  double offset = 0;
  /// Empty: all.
  shard::Range rows = {};
  /// Where the model has the columns, in GGUF's order; empty: in that order.
  std::vector<shard::Range> columns = {};
  /// GGUF has these rows as columns.
  bool is_transposed = false;
  /// GGUF has -exp of these numbers.
  bool is_decay = false;
  /// Where the rows are in the tensor, if those of several weights stand in turn.
  int64_t stored_row = 0;
};

shard::Range rows_of(const Source& source) {
  const WeightRule& rule = source.weight->rule;
  if (source.rows.length > 0) return source.rows;
  return {0, rule.is_vector() ? rule.in : rule.out};
}

// A tensor of the GGUF file.
struct Output {
  io::TensorSpec spec;
  at::ScalarType type = at::kFloat;
  std::vector<Source> sources;
};

// What the tensors are, in the order of the plan.
class Chooser {
 public:
  Chooser(const LoadPlan& plan, const ModelConfig& config, std::optional<at::ScalarType> dtype)
      : plan_(plan), config_(config), dtype_(dtype), places_(part_places(config)) {}

  std::vector<Output> choose(bool pairs_rows) {
    for (const PlannedWeight& weight : plan_.weights()) add(weight, pairs_rows);
    return std::move(outputs_);
  }

 private:
  void add(const PlannedWeight& weight, bool pairs_rows) {
    const std::string& name = weight.rule.name;
    const size_t dot = name.rfind('.');
    const auto found = places_.find(name.substr(0, dot));
    check<ConfigError>(found != places_.end(), "models.export_gguf: ", core::quote(name),
                       " has no name in GGUF");
    const PartPlace& place = found->second;
    if (place.part == Part::kKeyValue) return add_apart(weight, place);
    const std::string suffix = name.substr(dot);
    Output output;
    const bool is_bare = is_bare_part(place.part);
    output.spec.name = gguf_name(config_, place) + (is_bare ? gguf_suffix(place.part) : suffix);
    output.type = type_of(weight, place.part);
    output.spec.dtype = file_type(output.type);
    output.spec.shape = {weight.rule.out, weight.rule.in};
    if (weight.rule.is_vector() || place.part == Part::kSharedRouter) {
      output.spec.shape = {weight.rule.in};
    }
    if (!weight.rule.element_shape.empty()) {
      output.spec.shape.push_back(weight.rule.element_shape.back());
    }
    const int64_t heads = pairs_rows ? heads_of(place) : 0;
    const double offset = is_norm_part(place.part) ? config_.norm_offset : 0;
    output.sources.push_back({.weight = &weight,
                              .paired_heads = heads,
                              .offset = offset,
                              .is_decay = place.part == Part::kDeltaDecayLog});
    order_heads(place.part, output);
    const FusedRow* fused = fused_row(config_, place.part);
    if (fused != nullptr && !fused->is_apart_in_gguf) {
      output.spec.name = filled_name(fused->gguf, place) + suffix;
      output.spec.shape[0] = fused_place(config_, *fused, place.part).num_rows;
      cut_groups(*fused, place.part, output);
      join(std::move(output), "rows of the same tensor");
    } else if (is_expert_part(place.part)) {
      output.spec.shape.insert(output.spec.shape.begin(), config_.experts.num_experts);
      join(std::move(output), "the layer's other experts");
    } else {
      outputs_.push_back(std::move(output));
    }
  }

  // The rows of each group by themselves, so that those of all parts can stand in turn.
  void cut_groups(const FusedRow& fused, Part part, Output& output) const {
    if (!fused.is_grouped) return;
    const Source whole = output.sources.front();
    output.sources.clear();
    const int64_t first = fused_place(config_, fused, part).first_row;
    for (const auto& piece : row_groups(config_, fused).pieces({first, whole.weight->rule.out})) {
      Source source = whole;
      source.rows = {piece.row - first, piece.length};
      source.stored_row = piece.stored_row;
      output.sources.push_back(source);
    }
  }

  // Value heads of gated delta nets in GGUF's order.
  void order_heads(Part part, Output& output) const {
    const TiledHeads heads = tiled_heads(config_, part);
    if (heads.is_plain()) return;
    const Source whole = output.sources.front();
    if (part == Part::kDeltaOut) {
      output.sources.front().columns = heads.in_model();
      return;
    }
    output.sources.clear();
    for (const shard::Range& rows : heads.in_model()) {
      output.sources.push_back(whole);
      output.sources.back().rows = rows;
    }
  }

  // What makes each head's keys, transposed, and what makes its values are two tensors.
  void add_apart(const PlannedWeight& weight, const PartPlace& place) {
    const int64_t heads = config_.num_heads, rank = config_.latent.kv_rank;
    const int64_t keys = config_.head_dim - config_.rope_dims, values = config_.latent.value_dim;
    for (const bool is_of_keys : {true, false}) {
      Output& output = outputs_.emplace_back();
      output.spec.name =
          core::join("blk.", place.layer, ".attn_", is_of_keys ? "k" : "v", "_b.weight");
      output.type = type_of(weight, place.part);
      output.spec.dtype = file_type(output.type);
      output.spec.shape = {heads, is_of_keys ? rank : values, is_of_keys ? keys : rank};
      for (int64_t head = 0; head < heads; ++head) {
        const int64_t first = head * (keys + values);
        const shard::Range rows =
            is_of_keys ? shard::Range{first, keys} : shard::Range{first + keys, values};
        output.sources.push_back({.weight = &weight, .rows = rows, .is_transposed = is_of_keys});
      }
    }
  }

  // Routers and vectors take little and are kept exact.
  at::ScalarType type_of(const PlannedWeight& weight, Part part) const {
    const bool is_small =
        weight.rule.is_vector() || part == Part::kRouter || part == Part::kSharedRouter;
    if (is_small || dtype_) return is_small ? at::kFloat : *dtype_;
    return plain_type(weight.format.kind, plan_.recipe(weight, 0, 0).result.dtype());
  }

  int64_t heads_of(const PartPlace& place) const {
    if (!weight_row(config_, place).is_turned) return 0;
    const bool is_query = place.part == Part::kQuery || place.part == Part::kQueryNorm;
    return is_query ? config_.num_heads : config_.num_kv_heads;
  }

  // Adds a weight to the tensor that it is a part of; the first one makes it. The plan has them in
  // their order.
  void join(Output output, const char* others) {
    const auto [entry, is_first] = joined_.emplace(output.spec.name, outputs_.size());
    if (is_first) {
      outputs_.push_back(std::move(output));
      return;
    }
    Output& whole = outputs_[entry->second];
    check<ConfigError>(whole.type == output.type,
                       "models.export_gguf: ", core::quote(output.sources[0].weight->rule.name),
                       " is of another type than ", others,
                       ", which GGUF has in one tensor; give --dtype");
    whole.sources.insert(whole.sources.end(), output.sources.begin(), output.sources.end());
    std::ranges::stable_sort(whole.sources, {}, &Source::stored_row);
  }

  const LoadPlan& plan_;
  const ModelConfig& config_;
  std::optional<at::ScalarType> dtype_;
  std::map<std::string, PartPlace> places_;
  std::vector<Output> outputs_;
  std::map<std::string, size_t> joined_;
};

// Rows of whole heads from halves to pairs, for GGUF's own rope.
at::Tensor with_pairs(const at::Tensor& rows, int64_t head_dim) {
  return rows.reshape({rows.size(0) / head_dim, 2, head_dim / 2, -1})
      .transpose(1, 2)
      .reshape(rows.sizes());
}

at::Tensor with_columns(const at::Tensor& rows, const std::vector<shard::Range>& columns) {
  if (columns.empty()) return rows;
  std::vector<at::Tensor> parts;
  for (const shard::Range& range : columns) {
    parts.push_back(rows.narrow(1, range.start, range.length));
  }
  return at::cat(parts, 1);
}

class GgufExporter {
 public:
  GgufExporter(const io::TensorFile& file, const LoadPlan& plan, io::GgufWriter& writer)
      : reader_(file, plan), writer_(writer) {}

  void write(const Source& source, at::ScalarType type) {
    const PlannedWeight& weight = *source.weight;
    const shard::Range all = rows_of(source);
    const int64_t head_dim = source.paired_heads > 0 ? all.length / source.paired_heads : 1;
    if (weight.rule.is_vector()) {
      const at::Tensor vector = reader_.vector(weight, type).narrow(0, all.start, all.length);
      if (source.is_decay) return put(at::exp(vector).neg(), source, head_dim, type);
      return put(source.offset == 0 ? vector : vector + source.offset, source, head_dim, type);
    }
    if (source.is_transposed) {
      return put(reader_.plain_rows(weight, all, at::kFloat).t().contiguous(), source, 1, type);
    }
    for (const shard::Range& rows : RowReader::runs(weight, all, head_dim)) {
      const at::Tensor plain = reader_.plain_rows(weight, rows, at::kFloat);
      put(with_columns(plain, source.columns), source, head_dim, type);
    }
  }

 private:
  void put(const at::Tensor& rows, const Source& source, int64_t head_dim, at::ScalarType type) {
    const at::Tensor ordered = source.paired_heads > 0 ? with_pairs(rows, head_dim) : rows;
    writer_.write(bytes_of(converted(ordered, type, source.weight->rule.name)));
  }

  RowReader reader_;
  io::GgufWriter& writer_;
};

// What GGUF has as tensors of what config.json says of rope.
std::vector<std::pair<std::string, at::Tensor>> rope_tensors(const ModelConfig& config) {
  const nn::RopeScaling& scaling = config.rope_scaling;
  if (scaling.type == nn::RopeType::kLlama3) {
    return {{kRopeDivisors, llama3_divisors(rotated_dims(config), config.rope_base, scaling)}};
  }
  if (scaling.type != nn::RopeType::kLongRope) return {};
  return {{kLongRopeFactors, at::tensor(scaling.long_factors, at::kFloat)},
          {kShortRopeFactors, at::tensor(scaling.short_factors, at::kFloat)}};
}

std::vector<GgufKey> make_keys(const io::TensorFile& file, const ModelConfig& config,
                               const std::string& architecture) {
  GgufKeyList keys(architecture);
  add_model_keys(config, keys);
  keys.text("general.name", std::filesystem::path(folder_of(file)).filename().string());
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
  const std::string architecture = gguf_architecture(config, file.path());
  const LoadPlan plan = make_plan(file, 1);
  check_copied_head(config, file, dist::Group());
  const std::vector<Output> outputs =
      Chooser(plan, config, dtype).choose(family_info(config).has_paired_rows);
  const auto ropes = rope_tensors(config);
  std::vector<io::TensorSpec> specs;
  for (const Output& output : outputs) specs.push_back(output.spec);
  for (const auto& [name, numbers] : ropes) {
    specs.push_back({name, io::Dtype::kF32, {numbers.numel()}});
  }
  io::GgufWriter writer(path, make_keys(file, config, architecture), specs);
  GgufExporter exporter(file, plan, writer);
  const uint64_t all = plan.params().planned_bytes(0);
  uint64_t done = 0;
  for (const Output& output : outputs) {
    for (const Source& source : output.sources) {
      exporter.write(source, output.type);
      const Source whole = {source.weight};
      done += plan.planned_bytes(*source.weight, 0) *
              static_cast<uint64_t>(rows_of(source).length) /
              static_cast<uint64_t>(rows_of(whole).length);
      progress(done, all);
    }
  }
  for (const auto& [name, numbers] : ropes) writer.write(bytes_of(numbers));
  writer.commit();
}

}  // namespace weft::models
