#include "weft/models/quantize/quantized_folder.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "weft/core/error.h"
#include "weft/models/decoder/weights/tiled_heads.h"
#include "weft/models/quantize/budget.h"

namespace weft::models {
namespace {

using core::check;
using core::ConfigError;

// One method by its name.
struct NamedMethod {
  const char* name;
  RoundingMethod method;
};
constexpr NamedMethod kRoundingMethods[] = {{"round", {false, false}},
                                            {"gptq", {true, false}},
                                            {"awq", {false, true}},
                                            {"awq+gptq", {true, true}}};

}  // namespace

RoundingMethod parse_method(const std::string& name, const std::string& where) {
  const auto* const found = std::ranges::find_if(
      kRoundingMethods, [&](const NamedMethod& each) { return name == each.name; });
  check<ConfigError>(found != std::end(kRoundingMethods), where, ": ", core::quote(name),
                     ", expected round, gptq, awq or awq+gptq");
  return found->method;
}

void QuantizedFolder::prepare(const ModelConfig& config, const RowReader& reader,
                              std::vector<ExportOutput>& outputs) {
  config_ = config;
  places_ = part_places(config);
  if (rounding_.method.scales_inputs) {
    scales_ = InputScales(config, reader, outputs, rounding_.importance, group_);
  }
  if (!rounding_.method.is_plain()) note_missing(outputs);
  if (rounding_.bits_per_weight > 0) choose_bits(reader, outputs);
  bits_per_weight_ = models::bits_per_weight(outputs);
}

// Losses with and without products have other units and can't be compared.
void QuantizedFolder::choose_bits(const RowReader& reader, std::vector<ExportOutput>& outputs) {
  const bool by_products =
      rounding_.method.has_feedback && std::ranges::all_of(outputs, [&](const ExportOutput& each) {
        return !each.is_quantized_anew || rounding_.importance.has_products(named(each).tensor);
      });
  const auto losses = [&](const ExportOutput& output, size_t first) {
    return losses_of(output, reader.sampled_rows(*output.weight, kBudgetRows), first, by_products);
  };
  set_bits_within(rounding_.bits_per_weight, {by_products, losses}, outputs, group_);
}

BitLosses QuantizedFolder::losses_of(const ExportOutput& output, const at::Tensor& rows,
                                     size_t first, bool by_products) {
  const Rounding& rounding = rounding_of(output);
  const at::Tensor factors = scales_.of_columns(output);
  const at::Tensor numbers = factors.defined() ? rows * factors : rows;
  const auto all_rows = static_cast<double>(output.rule().out);
  ExportOutput rounded = output;
  BitLosses losses{};
  for (size_t b = first; b < losses.size(); ++b) {
    rounded.scheme->bits = kAffineBits[b];
    const quant::QuantizedMatrix codes = rounding_.method.is_plain()
                                             ? FolderForm::quantize(rounded, 0, numbers)
                                             : rounding.affine(rounded.affine_form(), numbers);
    const at::Tensor values = quant::dequantize(codes, at::kFloat);
    losses[b] = by_products ? all_rows * rounding.loss(numbers, values)
                            : rounding.changed_share(numbers, values);
  }
  return losses;
}

QuantizedFolder::Named QuantizedFolder::named(const ExportOutput& output) const {
  const PartPlace& place = places_.at(output.rule().base());
  // GGUF has the columns of these in another order.
  const bool is_tiled =
      place.part == Part::kDeltaOut && !tiled_heads(config_, place.part).is_plain();
  if (is_tiled) return {};
  const int64_t matrices = is_expert_part(place.part) ? config_.experts.num_experts : 1;
  return {importance_name(config_, place), {output.rule().in, place.expert, matrices}};
}

void QuantizedFolder::note_missing(const std::vector<ExportOutput>& outputs) {
  const bool needs_products = rounding_.method.has_feedback;
  std::vector<std::string> without;
  int64_t count = 0;
  for (const ExportOutput& output : outputs) {
    if (!output.is_quantized_anew) continue;
    ++count;
    const std::string tensor = named(output).tensor;
    const bool is_known = needs_products ? rounding_.importance.has_products(tensor)
                                         : rounding_.importance.tensors.contains(tensor);
    if (!is_known) without.push_back(output.rule().base());
  }
  const std::string& path = rounding_.importance_path;
  const char* what = needs_products ? "products of inputs" : "inputs";
  check<ConfigError>(static_cast<int64_t>(without.size()) < std::max<int64_t>(count, 1), path,
                     ": has no ", what, " of this model's matrices, expected an importance matrix ",
                     "of this model", needs_products ? " that was made with products" : "");
  if (without.empty()) return;
  const std::string others =
      without.size() > 1 ? core::join(" and ", without.size() - 1, " others") : "";
  notes_.push_back(core::join(path, ": has no ", what, " of ", without[0], others,
                              ", which are rounded without"));
}

const Rounding& QuantizedFolder::rounding_of(const ExportOutput& output) {
  if (!current_ || current_name_ != output.rule().name) {
    const Named name = named(output);
    current_.emplace(rounding_.importance, name.tensor, name.matrix,
                     RoundingOptions{scales_.of_columns(output), rounding_.method.has_feedback});
    current_name_ = output.rule().name;
  }
  return *current_;
}

quant::QuantizedMatrix QuantizedFolder::quantize(const ExportOutput& output, int64_t first_row,
                                                 const at::Tensor& numbers) {
  if (rounding_.method.is_plain()) return FolderForm::quantize(output, first_row, numbers);
  return rounding_of(output).affine(output.affine_form(),
                                    scales_.folded(output, first_row, numbers));
}

at::Tensor QuantizedFolder::changed(const ExportOutput& output, int64_t first_row,
                                    const at::Tensor& numbers) {
  return scales_.folded(output, first_row, numbers);
}

}  // namespace weft::models
