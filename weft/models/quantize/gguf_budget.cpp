#include "weft/models/quantize/gguf_budget.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "weft/models/quantize/budget.h"
#include "weft/models/quantize/rounding.h"
#include "weft/quant/affine.h"
#include "weft/quant/formats/gguf_blocks.h"
#include "weft/quant/quantizers/gguf_quantize.h"

namespace weft::models {
namespace {

using core::Dtype;

double bits_of(const GgufOutput& output, Dtype type) {
  const core::DtypeInfo& info = core::info(type);
  return 8.0 * static_cast<double>(output.num_elements()) * static_cast<double>(info.block_bytes) /
         static_cast<double>(info.block_elements);
}

bool fits(const GgufOutput& output, Dtype type) {
  return output.num_columns() % core::info(type).block_elements == 0;
}

at::Tensor sampled_rows(const GgufOutput& output, const GgufSource& source, const GgufRows& rows) {
  std::vector<at::Tensor> parts;
  const int64_t columns = output.num_columns();
  const int64_t all = source.taken_rows().length;
  const int64_t step = std::max<int64_t>(1, all / kBudgetRows);
  int64_t before = 0;
  rows.visit(source, at::kFloat, [&](const at::Tensor& run) {
    const at::Tensor matrix = run.reshape({-1, columns});
    const int64_t first = (step - before % step) % step;
    before += matrix.size(0);
    if (first < matrix.size(0)) parts.push_back(matrix.slice(0, first, matrix.size(0), step));
  });
  return at::cat(parts);
}

at::Tensor rounded_to(Dtype type, const at::Tensor& rows, const Rounding& rounding) {
  const at::Tensor blocks = rounding.blocks(type, rows);
  const std::span bytes(static_cast<const std::byte*>(blocks.const_data_ptr()), blocks.nbytes());
  return quant::dequantize(quant::from_gguf_blocks(type, bytes, rows.size(0), rows.size(1)),
                           at::kFloat);
}

// How matrices are measured.
struct Measure {
  const Importance& importance;
  // Losses by products of inputs, and else by squares.
  bool by_products;
  const GgufRows& rows;
  std::vector<Dtype> types;
};

// What a matrix loses as each type, float64 [types]; types that don't fit its rows stay 0.
void measure(const Measure& how, const GgufOutput& output, double* losses) {
  // Of experts one stands for all: they have the same type.
  const GgufSource& source = output.sources[output.sources.size() / 2];
  const at::Tensor sample = sampled_rows(output, source, how.rows);
  const Rounding rounding(how.importance, output.spec.name,
                          TensorMatrix{output.num_columns(), source.expert, output.num_matrices()});
  const int64_t num_rows = output.num_elements() / output.num_columns();
  for (size_t t = 0; t < how.types.size(); ++t) {
    if (!fits(output, how.types[t])) continue;
    const at::Tensor rounded = rounded_to(how.types[t], sample, rounding);
    losses[t] = how.by_products ? static_cast<double>(num_rows) * rounding.loss(sample, rounded)
                                : rounding.changed_share(sample, rounded);
  }
}

}  // namespace

std::map<size_t, Dtype> types_within(double bits, const Importance& importance,
                                     const GgufRows& rows, const std::vector<GgufOutput>& outputs,
                                     const std::function<bool(const GgufOutput&)>& is_fixed,
                                     const dist::Group& group) {
  const std::vector<Dtype> types = quant::quantizable_block_types();
  std::vector<size_t> places;
  double taken = 0, numbers = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const GgufOutput& output = outputs[i];
    numbers += static_cast<double>(output.num_elements());
    const bool is_free =
        output.is_matrix && !is_fixed(output) &&
        std::ranges::any_of(types, [&](const Dtype type) { return fits(output, type); });
    if (is_free) {
      places.push_back(i);
    } else {
      taken += bits_of(output, output.spec.dtype);
    }
  }
  // Losses with and without products have other units and can't be compared.
  const bool by_products = std::ranges::all_of(
      places, [&](size_t i) { return importance.has_products(outputs[i].spec.name); });
  const Measure how{importance, by_products, rows, types};
  const at::Tensor losses = measured_losses(
      std::ssize(places), std::ssize(types),
      [&](size_t p, double* row) { measure(how, outputs[places[p]], row); }, group);
  std::vector<std::vector<BitChoice>> choices(places.size());
  for (size_t p = 0; p < places.size(); ++p) {
    const GgufOutput& output = outputs[places[p]];
    const double* const row = losses.const_data_ptr<double>() + p * types.size();
    for (size_t t = 0; t < types.size(); ++t) {
      if (fits(output, types[t])) choices[p].push_back({bits_of(output, types[t]), row[t], t});
    }
  }
  const std::vector<size_t> forms = forms_within(bits, taken, numbers, std::move(choices));
  std::map<size_t, Dtype> chosen;
  for (size_t p = 0; p < places.size(); ++p) chosen[places[p]] = types[forms[p]];
  return chosen;
}

}  // namespace weft::models
