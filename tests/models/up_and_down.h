#pragma once

#include <cstdint>
#include <string>

#include "weft/models/load/weight_rules.h"

namespace weft::test {

/// The rules of a file of two matrices [out, in]: "up", cut by rows, and "down", cut by columns in
/// whole units.
inline models::WeightRules up_and_down(int64_t out, int64_t in, int64_t columns_unit = 1) {
  models::WeightRules rules;
  rules.splits["rows"].size = out;
  rules.splits["columns"].size = in;
  rules.splits["columns"].unit = columns_unit;
  const auto add = [&](const std::string& base, models::Cut cut, const std::string& split) {
    models::WeightRule rule;
    rule.name = rule.file_name = base + ".weight";
    rule.out = out;
    rule.in = in;
    rule.cut = cut;
    rule.split = split;
    rules.weights.push_back(rule);
  };
  add("up", models::Cut::kRows, "rows");
  add("down", models::Cut::kColumns, "columns");
  return rules;
}

}  // namespace weft::test
