#include "weft/models/passes/pass_choice.h"

#include <optional>
#include <string_view>
#include <utility>

#include "weft/core/error.h"
#include "weft/core/log.h"

namespace weft::models {

PassChoice::PassChoice(PassParts parts, std::span<const PassRow> rows)
    : parts_(std::move(parts)), used_(options_in_use(parts_.config)), modules_(parts_) {
  if (!parts_.is_whole) return;
  for (const PassRow& row : rows) candidates_.push_back({&row, nullptr});
}

Pass& PassChoice::best() {
  for (Candidate& candidate : candidates_) {
    if (Pass* const pass = usable(candidate)) return *pass;
  }
  return otherwise();
}

Pass& PassChoice::best_for(const nn::KvCache* cache) {
  for (Candidate& candidate : candidates_) {
    Pass* const pass = usable(candidate);
    if (pass != nullptr && pass->takes(cache)) return *pass;
  }
  return otherwise();
}

// The modules, which know no order of sums.
Pass& PassChoice::otherwise() {
  if (!parts_.is_exact) return modules_;
  constexpr std::string_view kWhere = "models: the same bits on any number of ranks: ";
  for (const Candidate& candidate : candidates_) {
    const auto& known = candidate.row->known_in_order;
    if (!known) continue;
    const OptionSet missing = used_.without(*known);
    core::check<core::ConfigError>(missing.is_empty(), kWhere, names_of(missing),
                                   ", expected a model without; ask for the usual sums");
  }
  core::fail<core::ConfigError>(
      kWhere,
      "weights, or a cache, that the pass for weights in panels does not take, expected rows of "
      "whole blocks of 32 columns on each rank in any type but one of 8-bit floats, a cache of "
      "float16, float32 or 8 bits, and no gradients; ask for the usual sums or for another number "
      "of ranks");
}

// Null where it can't run the model.
Pass* PassChoice::usable(Candidate& candidate) {
  const PassRow& row = *candidate.row;
  const std::optional<OptionSet> known = parts_.is_exact ? row.known_in_order : row.known;
  if (!known || !used_.without(*known).is_empty()) {
    if (!parts_.is_exact && !has_said_ && row.is_wanted(parts_)) say_why_not(row);
    return nullptr;
  }
  if (candidate.made == nullptr || !candidate.made->is_current()) candidate.made = row.make(parts_);
  return candidate.made->is_complete() ? candidate.made.get() : nullptr;
}

void PassChoice::say_why_not(const PassRow& row) {
  has_said_ = true;
  if (parts_.group.rank() != 0) return;
  core::log(core::LogLevel::kWarn, "models: the pass for ", row.name, " can't compute ",
            names_of(used_.without(row.known)), "; layers run one by one instead, so that ",
            row.cost);
}

}  // namespace weft::models
