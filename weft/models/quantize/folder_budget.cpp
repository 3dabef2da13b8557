#include "weft/models/quantize/folder_budget.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "weft/core/dtype.h"
#include "weft/core/error.h"
#include "weft/models/quantize/budget.h"

namespace weft::models {
namespace {

// Outputs that are one tensor.
using Unit = std::vector<ExportOutput*>;

double bits_of(const ExportOutput& output) {
  if (!output.makes_tensors()) return 0;
  double bits = 0;
  for (const io::TensorSpec& spec : output.specs()) {
    double numbers = 1;
    for (const int64_t size : spec.shape) numbers *= static_cast<double>(size);
    bits += 8 * numbers * static_cast<double>(core::info(spec.dtype).block_bytes);
  }
  return bits;
}

double numbers_of(const ExportOutput& output) {
  double numbers = 0;
  for (const PlannedWeight* weight : output.weights()) {
    const WeightRule& rule = weight->rule;
    numbers += static_cast<double>(rule.is_vector() ? rule.in : rule.in * rule.out);
  }
  return numbers;
}

double numbers_of_all(const std::vector<ExportOutput>& outputs) {
  double numbers = 0;
  for (const ExportOutput& output : outputs) numbers += numbers_of(output);
  return numbers;
}

std::vector<Unit> units_of(std::vector<ExportOutput>& outputs) {
  std::vector<Unit> units;
  std::map<std::string, size_t> places;
  for (ExportOutput& output : outputs) {
    if (!output.is_quantized_anew) continue;
    const auto [place, is_new] = places.try_emplace(output.base, units.size());
    if (is_new) units.emplace_back();
    units[place->second].push_back(&output);
  }
  return units;
}

void set_bits(const Unit& unit, int64_t bits) {
  for (ExportOutput* output : unit) output->scheme->bits = bits;
}

double bits_of(const Unit& unit) {
  double bits = 0;
  for (const ExportOutput* output : unit) bits += bits_of(*output);
  return bits;
}

// From kAffineBits[first] on.
void measure_unit(const FolderMeasure& measure, const Unit& unit, size_t first, double* losses) {
  const bool is_stack = unit.front()->stack_size > 0;
  const Unit measured = is_stack ? Unit{unit[unit.size() / 2]} : unit;
  double numbers = 0;
  for (const ExportOutput* output : measured) numbers += numbers_of(*output);
  for (const ExportOutput* output : measured) {
    const BitLosses own = measure.losses(*output, first);
    const double share = measure.is_absolute ? 1 : numbers_of(*output) / numbers;
    for (size_t b = first; b < own.size(); ++b) losses[b] += share * own[b];
  }
}

// The place in kAffineBits of the most that all may have; 0 if none fits. What few bits lose is
// more than the measure says, so that none gets fewer than all could have.
size_t most_bits_of_all(double limit, const std::vector<ExportOutput>& outputs,
                        const std::vector<Unit>& units) {
  for (size_t b = kAffineBits.size() - 1; b > 0; --b) {
    for (const Unit& unit : units) set_bits(unit, kAffineBits[b]);
    if (bits_per_weight(outputs) <= limit) return b;
  }
  return 0;
}

}  // namespace

double bits_per_weight(const std::vector<ExportOutput>& outputs) {
  double bits = 0;
  for (const ExportOutput& output : outputs) bits += bits_of(output);
  const double numbers = numbers_of_all(outputs);
  return numbers > 0 ? bits / numbers : 0;
}

void set_bits_within(double limit, const FolderMeasure& measure, std::vector<ExportOutput>& outputs,
                     const dist::Group& group) {
  const std::vector<Unit> units = units_of(outputs);
  const bool has_bits = std::ranges::all_of(outputs, [](const ExportOutput& each) {
    return !each.is_quantized_anew || (each.is_affine() && each.format == FolderFormat::kMlx);
  });
  core::check<core::ConfigError>(has_bits, "models.quantize: ", limit,
                                 " bits per weight: expected MLX's format with affine codes, of "
                                 "which each matrix has its own bits");
  double taken = 0;
  for (const ExportOutput& output : outputs)
    taken += output.is_quantized_anew ? 0 : bits_of(output);
  const size_t least = most_bits_of_all(limit, outputs, units);
  const at::Tensor losses = measured_losses(
      std::ssize(units), std::ssize(kAffineBits),
      [&](size_t u, double* row) { measure_unit(measure, units[u], least, row); }, group);
  std::vector<std::vector<BitChoice>> choices(units.size());
  for (size_t u = 0; u < units.size(); ++u) {
    const double* const row = losses.const_data_ptr<double>() + u * kAffineBits.size();
    for (size_t b = least; b < kAffineBits.size(); ++b) {
      set_bits(units[u], kAffineBits[b]);
      choices[u].push_back({bits_of(units[u]), row[b], b});
    }
  }
  const std::vector<size_t> forms =
      forms_within(limit, taken, numbers_of_all(outputs), std::move(choices));
  for (size_t u = 0; u < units.size(); ++u) set_bits(units[u], kAffineBits[forms[u]]);
}

}  // namespace weft::models
