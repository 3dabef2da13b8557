#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "weft/models/load/load.h"

namespace weft::test {

/// A tensor's elements as a file has them.
inline std::string bytes_of_tensor(const at::Tensor& tensor) {
  const at::Tensor whole = tensor.contiguous();
  return {static_cast<const char*>(whole.const_data_ptr()), whole.nbytes()};
}

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

/// Each of 1 to 5 ranks reads its part of both, as the rules cut them, bit for bit and as a linear
/// of that kind.
template <class Impl>
void expect_up_and_down(const io::TensorFile& file, const models::WeightRules& rules,
                        const at::Tensor& up, const at::Tensor& down,
                        const models::PlanOptions& options = {}) {
  for (const int64_t n : {1, 2, 3, 4, 5}) {
    const models::LoadPlan plan(file, rules, n, options);
    for (int64_t rank = 0; rank < n; ++rank) {
      const models::WeightReader reader(file, plan, rank);
      const shard::Range rows = plan.split("rows").of(rank)[0];
      const shard::Range columns = plan.split("columns").of(rank)[0];
      const auto expect_equal = [&](const std::string& base, const at::Tensor& expected) {
        const auto linear = reader.linear(base, false);
        ASSERT_NE(dynamic_cast<Impl*>(linear.get()), nullptr);
        EXPECT_TRUE(at::equal(linear->dense_weight(), expected))
            << base << ", " << plan.require(base + ".weight").format.text << ", rank " << rank
            << " of " << n;
      };
      expect_equal("up", up.narrow(0, rows.start, rows.length));
      expect_equal("down", down.narrow(1, columns.start, columns.length));
    }
  }
}

}  // namespace weft::test
