#pragma once

#include <memory>
#include <span>
#include <vector>

#include "weft/models/options/options.h"
#include "weft/models/passes/modules_pass.h"
#include "weft/models/passes/pass.h"
#include "weft/models/passes/pass_table.h"

namespace weft::models {

/// The passes of one decoder, made when they are first wanted and again after its linears were
/// exchanged. Not collective: every rank chooses the same, as the configuration and how weights are
/// held is the same on all.
class PassChoice {
 public:
  /// Of the passes for speed in `rows`, which must live as long.
  explicit PassChoice(PassParts parts, std::span<const PassRow> rows = pass_table());

  /// The first of the table that knows all options in use and can run the weights as they are held,
  /// else the modules. An option that keeps the weights' own pass from being taken is said once, as
  /// a warning of rank 0. Throws ConfigError where PassParts::ordered leaves none.
  Pass& best();
  /// The first of those that takes `cache`, or null, now. Throws as best.
  Pass& best_for(const nn::KvCache* cache);
  ModulesPass& modules() { return modules_; }

 private:
  struct Candidate {
    const PassRow* row;
    std::unique_ptr<Pass> made;
  };
  Pass* usable(Candidate& candidate);
  Pass& otherwise();
  void say_why_not(const PassRow& row);

  PassParts parts_;
  OptionSet used_;
  ModulesPass modules_;
  std::vector<Candidate> candidates_;
  bool has_said_ = false;
};

}  // namespace weft::models
