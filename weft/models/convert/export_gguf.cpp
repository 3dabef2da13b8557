#include "weft/models/convert/export_gguf.h"

#include <ATen/ops/tensor.h>

#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "weft/core/error.h"
#include "weft/dist/launch/run_together.h"
#include "weft/io/formats/write_gguf.h"
#include "weft/models/config/config_rope.h"
#include "weft/models/config/families.h"
#include "weft/models/config/mixers/config_gemma4.h"
#include "weft/models/config/sources.h"
#include "weft/models/convert/export_types.h"
#include "weft/models/convert/keys/gemma4_keys.h"
#include "weft/models/convert/keys/gguf_model_keys.h"
#include "weft/models/convert/llama3_divisors.h"
#include "weft/models/decoder/tied_head.h"
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
  if (!vocabulary.pre_tokenizer.empty()) {
    keys.text("tokenizer.ggml.pre", vocabulary.pre_tokenizer);
  }
  keys.add({"tokenizer.ggml.tokens", GgufType::kString, std::move(tokens)});
  keys.add({"tokenizer.ggml.token_type", GgufType::kI32, std::move(types)});
  keys.add({"tokenizer.ggml.merges", GgufType::kString, vocabulary.merges});
  if (vocabulary.bos >= 0) keys.number("tokenizer.ggml.bos_token_id", vocabulary.bos);
  if (vocabulary.eos >= 0) keys.number("tokenizer.ggml.eos_token_id", vocabulary.eos);
  if (vocabulary.unknown >= 0) keys.number("tokenizer.ggml.unknown_token_id", vocabulary.unknown);
  keys.flag("tokenizer.ggml.add_bos_token", vocabulary.add_bos);
  keys.flag("tokenizer.ggml.add_eos_token", vocabulary.add_eos);
}

// What GGUF has as tensors of what config.json says of rope.
std::vector<std::pair<std::string, at::Tensor>> rope_tensors(const ModelConfig& config) {
  const nn::RopeScaling& scaling = config.rope_scaling;
  if (scaling.type == nn::RopeType::kLlama3) {
    return {{kRopeDivisors, llama3_divisors(rotated_dims(config), config.rope_base, scaling)}};
  }
  if (scaling.type == nn::RopeType::kProportional) {
    return {{kRopeDivisors, at::tensor(gemma4_divisors(config), at::kFloat)}};
  }
  if (scaling.type != nn::RopeType::kLongRope) return {};
  return {{kLongRopeFactors, at::tensor(scaling.long_factors, at::kFloat)},
          {kShortRopeFactors, at::tensor(scaling.short_factors, at::kFloat)}};
}

std::vector<GgufKey> make_keys(const io::TensorFile& file, const ModelConfig& config,
                               const std::string& architecture, std::vector<GgufKey> own) {
  GgufKeyList keys(architecture);
  add_model_keys(config, keys);
  keys.text("general.name", std::filesystem::path(folder_of(file)).filename().string());
  const bool knows_characters = has_gemma4_layers(family_info(config));
  add_tokenizer(text::read_gguf_vocabulary(folder_of(file), knows_characters), config.vocab_size,
                keys);
  const auto templates = text::read_tokenizer_folder(folder_of(file)).chat_templates;
  const auto usual = templates.find("default");
  if (usual != templates.end()) keys.text("tokenizer.chat_template", usual->second);
  for (GgufKey& key : own) keys.add(std::move(key));
  return keys.take();
}

class GgufExporter {
 public:
  GgufExporter(const io::TensorFile& file, std::optional<at::ScalarType> dtype, GgufForm& form,
               const dist::Group& group)
      : form_(form),
        group_(group),
        config_(read_config(file)),
        plan_(make_plan(file, 1)),
        reader_(file, plan_),
        outputs_(choose_gguf_outputs(plan_, config_, dtype)) {}

  void run(const io::TensorFile& file, const std::string& path, const ExportProgress& progress) {
    const std::string architecture = gguf_architecture(config_, file.path());
    check_copied_head(config_, file, group_);
    form_.choose_types(config_, reader_, outputs_);
    const auto ropes = rope_tensors(config_);
    dist::run_together(group_, [&] {
      if (group_.rank() != 0) return;
      writer_.emplace(path, make_keys(file, config_, architecture, form_.keys()), specs(ropes));
    });
    for (const GgufOutput& output : outputs_) write(output, progress);
    dist::run_together(group_, [&] {
      if (!writer_) return;
      for (const auto& [name, numbers] : ropes) writer_->write(bytes_of(numbers));
      writer_->commit();
    });
  }

 private:
  std::vector<io::TensorSpec> specs(
      const std::vector<std::pair<std::string, at::Tensor>>& ropes) const {
    std::vector<io::TensorSpec> specs;
    for (const GgufOutput& output : outputs_) specs.push_back(output.spec);
    for (const auto& [name, numbers] : ropes) {
      specs.push_back({name, io::Dtype::kF32, {numbers.numel()}});
    }
    return specs;
  }

  void write(const GgufOutput& output, const ExportProgress& progress) {
    for (const GgufSource& source : output.sources) {
      reader_.visit(source, output.type, [&](const at::Tensor& rows) {
        const at::Tensor bytes = form_.encode(output, source, rows);
        dist::run_together(group_, [&] {
          if (writer_) writer_->write(bytes_of(bytes));
        });
      });
      const GgufSource whole = {.weight = source.weight};
      done_ += plan_.planned_bytes(*source.weight, 0) *
               static_cast<uint64_t>(source.taken_rows().length) /
               static_cast<uint64_t>(whole.taken_rows().length);
      progress(done_, plan_.params().planned_bytes(0));
    }
  }

  GgufForm& form_;
  const dist::Group& group_;
  ModelConfig config_;
  LoadPlan plan_;
  GgufRows reader_;
  std::vector<GgufOutput> outputs_;
  // Rank 0's.
  std::optional<io::GgufWriter> writer_;
  uint64_t done_ = 0;
};

void export_in_form(const io::TensorFile& file, std::optional<at::ScalarType> dtype, GgufForm& form,
                    const dist::Group& group, const std::string& path,
                    const ExportProgress& progress) {
  check<ConfigError>(!file.is_gguf(), file.path(),
                     ": a GGUF file already; convert it to a folder first");
  GgufExporter(file, dtype, form, group).run(file, path, progress);
}

}  // namespace

at::Tensor GgufForm::encode(const GgufOutput& output, const GgufSource& source,
                            const at::Tensor& rows) {
  return converted(rows, output.type, source.weight->rule.name);
}

void export_gguf(const io::TensorFile& file, std::optional<at::ScalarType> dtype,
                 const std::string& path, const ExportProgress& progress) {
  GgufForm form;
  export_in_form(file, dtype, form, dist::Group(), path, progress);
}

void export_gguf(const io::TensorFile& file, GgufForm& form, const dist::Group& group,
                 const std::string& path, const ExportProgress& progress) {
  export_in_form(file, std::nullopt, form, group, path, progress);
}

}  // namespace weft::models
