#include "weft/models/quantize/quantized_gguf.h"

#include <algorithm>
#include <map>
#include <regex>

#include "weft/core/error.h"
#include "weft/dist/launch/run_together.h"
#include "weft/models/quantize/gguf_budget.h"
#include "weft/models/quantize/rounding.h"
#include "weft/quant/torch_dtype.h"
#include "weft/shard/split.h"

namespace weft::models {
namespace {

using core::Dtype;
using io::GgufKey;
using io::GgufType;

// Of the meaning of ggml's blocks.
constexpr int64_t kQuantizationVersion = 2;

bool is_embedding(const GgufOutput& output) { return output.spec.name == "token_embd.weight"; }
bool is_head(const GgufOutput& output) { return output.spec.name == "output.weight"; }

std::string and_others(size_t count) {
  return count > 1 ? core::join(" and ", count - 1, " others") : "";
}

void set_type(Dtype type, GgufOutput& output) {
  output.spec.dtype = type;
  if (!core::info(type).is_block()) output.type = quant::torch_dtype(type).value_or(at::kFloat);
}

}  // namespace

double bits_per_weight(const std::vector<GgufOutput>& outputs) {
  double bits = 0, numbers = 0;
  for (const GgufOutput& output : outputs) {
    const core::DtypeInfo& type = core::info(output.spec.dtype);
    const auto count = static_cast<double>(output.num_elements());
    bits += 8 * count * static_cast<double>(type.block_bytes) /
            static_cast<double>(type.block_elements);
    numbers += count;
  }
  return numbers > 0 ? bits / numbers : 0;
}

std::optional<Dtype> QuantizedForm::fixed_type(const ModelConfig& config,
                                               const GgufOutput& output) const {
  if (options_.embedding && is_embedding(output)) return options_.embedding;
  if (options_.head && (is_head(output) || (config.is_tied && is_embedding(output)))) {
    return options_.head;
  }
  for (const TensorTypeRule& rule : options_.tensors) {
    if (std::regex_search(output.spec.name, rule.expression)) return rule.type;
  }
  return std::nullopt;
}

void QuantizedForm::check_rules(const std::vector<GgufOutput>& outputs) const {
  for (const TensorTypeRule& rule : options_.tensors) {
    const bool is_used = std::ranges::any_of(outputs, [&](const GgufOutput& output) {
      return output.is_matrix && std::regex_search(output.spec.name, rule.expression);
    });
    core::check<core::ConfigError>(is_used, "models.quantize: ", core::quote(rule.text),
                                   ", expected a part of a matrix's name in GGUF, e.g. ",
                                   core::quote("attn_v"), ", got none that has it");
  }
}

void QuantizedForm::choose_types(const ModelConfig& config, const GgufRows& rows,
                                 std::vector<GgufOutput>& outputs) {
  check_rules(outputs);
  const auto is_fixed = [&](const GgufOutput& output) {
    return fixed_type(config, output).has_value();
  };
  const bool has_importance = !options_.importance.tensors.empty();
  const int64_t num_values = std::ranges::count_if(
      outputs, [](const GgufOutput& output) { return makes_values(output.spec.name); });
  int64_t values = 0;
  std::vector<Dtype> wanted;
  for (GgufOutput& output : outputs) {
    const std::string& name = output.spec.name;
    const MixPlace place = {name, output.place.layer, values, num_values, has_importance};
    if (makes_values(name)) ++values;
    if (!output.is_matrix) {
      wanted.push_back(output.spec.dtype);
      continue;
    }
    wanted.push_back(fixed_type(config, output).value_or(mixed_type(*options_.mix, config, place)));
    set_type(fitting_type(wanted.back(), output.num_columns()), output);
  }
  if (options_.bits_per_weight > 0) {
    const auto types = types_within(options_.bits_per_weight, options_.importance, rows, outputs,
                                    is_fixed, group_);
    for (const auto& [index, type] : types) {
      set_type(type, outputs[index]);
      wanted[index] = type;
    }
    note_products(outputs, is_fixed);
  }
  note_fallbacks(outputs, wanted);
  note_importance(outputs);
  bits_per_weight_ = models::bits_per_weight(outputs);
}

void QuantizedForm::note_fallbacks(const std::vector<GgufOutput>& outputs,
                                   const std::vector<Dtype>& wanted) {
  std::map<std::pair<Dtype, Dtype>, std::vector<const GgufOutput*>> others;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Dtype type = outputs[i].spec.dtype;
    if (type != wanted[i]) others[{wanted[i], type}].push_back(&outputs[i]);
  }
  for (const auto& [types, list] : others) {
    notes_.push_back(core::join(list[0]->spec.name, and_others(list.size()), ": rows of ",
                                list[0]->num_columns(), " are no whole blocks of ",
                                core::info(types.first).name, ", so they are ",
                                core::info(types.second).name));
  }
}

void QuantizedForm::note_importance(const std::vector<GgufOutput>& outputs) {
  if (options_.importance.tensors.empty()) return;
  std::vector<std::string> without;
  for (const GgufOutput& output : outputs) {
    const bool is_plain = !core::info(output.spec.dtype).is_block();
    if (is_plain || is_embedding(output) || is_head(output)) continue;
    if (!options_.importance.tensors.contains(output.spec.name))
      without.push_back(output.spec.name);
  }
  if (without.empty()) return;
  notes_.push_back(core::join(options_.importance_path, ": says nothing of ", without[0],
                              and_others(without.size()),
                              ", which are rounded without importances"));
}

void QuantizedForm::note_products(const std::vector<GgufOutput>& outputs,
                                  const std::function<bool(const GgufOutput&)>& is_fixed) {
  std::vector<std::string> without;
  bool is_any = false;
  for (const GgufOutput& output : outputs) {
    if (!core::info(output.spec.dtype).is_block() || is_fixed(output)) continue;
    const bool has = options_.importance.has_products(output.spec.name);
    is_any = is_any || has;
    if (!has) without.push_back(output.spec.name);
  }
  if (without.empty() || !is_any) return;
  notes_.push_back(core::join(options_.importance_path, ": has no products of ", without[0],
                              and_others(without.size()), ", so all types are chosen by squares"));
}

std::vector<GgufKey> QuantizedForm::keys() const {
  std::vector<GgufKey> keys = {
      {"general.file_type", GgufType::kU32, int64_t{options_.mix->file_type}},
      {"general.quantization_version", GgufType::kU32, kQuantizationVersion},
  };
  const Importance& importance = options_.importance;
  if (importance.tensors.empty()) return keys;
  keys.push_back({"quantize.imatrix.file", GgufType::kString, options_.importance_path});
  if (!importance.texts.empty()) {
    keys.push_back({"quantize.imatrix.dataset", GgufType::kString, importance.texts.front()});
  }
  keys.push_back({"quantize.imatrix.entries_count", GgufType::kU32,
                  static_cast<int64_t>(importance.tensors.size())});
  if (importance.num_chunks > 0) {
    keys.push_back({"quantize.imatrix.chunks_count", GgufType::kU32, importance.num_chunks});
  }
  return keys;
}

const Rounding& QuantizedForm::rounding_of(const GgufOutput& output, const GgufSource& source) {
  std::pair<std::string, int64_t> wanted(output.spec.name, source.expert);
  if (!rounding_ || rounded_ != wanted) {
    rounding_.emplace(options_.importance, output.spec.name,
                      TensorMatrix{output.num_columns(), source.expert, output.num_matrices()});
    rounded_ = std::move(wanted);
  }
  return *rounding_;
}

at::Tensor QuantizedForm::encode(const GgufOutput& output, const GgufSource& source,
                                 const at::Tensor& rows) {
  const core::Dtype type = output.spec.dtype;
  if (!core::info(type).is_block()) return GgufForm::encode(output, source, rows);
  const Rounding& rounding = rounding_of(output, source);
  const at::Tensor matrix = rows.reshape({-1, output.num_columns()});
  if (matrix.size(0) < group_.size()) return rounding.blocks(type, matrix);
  const shard::Range own = shard::part(matrix.size(0), group_.size(), group_.rank());
  at::Tensor blocks;
  dist::run_together(
      group_, [&] { blocks = rounding.blocks(type, matrix.narrow(0, own.start, own.length)); });
  return group_.all_gather(blocks, 0);
}

}  // namespace weft::models
