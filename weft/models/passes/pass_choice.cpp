#include "weft/models/passes/pass_choice.h"

#include <utility>

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
  return modules_;
}

Pass& PassChoice::best_for(const nn::KvCache* cache) {
  for (Candidate& candidate : candidates_) {
    Pass* const pass = usable(candidate);
    if (pass != nullptr && pass->takes(cache)) return *pass;
  }
  return modules_;
}

// Null where it can't run the model.
Pass* PassChoice::usable(Candidate& candidate) {
  const PassRow& row = *candidate.row;
  if (!used_.without(row.known).is_empty()) {
    if (!has_said_ && row.is_wanted(parts_)) say_why_not(row);
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
