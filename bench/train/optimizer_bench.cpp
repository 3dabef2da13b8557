#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "weft/train/optimizer/optimizer.h"

/// Times a step of each optimizer on one matrix, and libtorch's fused AdamW beside them. They take
/// turns, so that a change of the machine's speed meets all alike. Arguments: rows of 1000 (30000),
/// threads (1).
namespace {

using weft::train::Optimizer;
using weft::train::OwnedSlice;

constexpr int kRounds = 15;
constexpr int64_t kColumns = 1000;
constexpr double kRate = 1e-3;

struct Row {
  std::string name;
  std::function<void()> step;
  std::vector<double> milliseconds = {};
};

void run(Row& row) {
  const auto begin = std::chrono::steady_clock::now();
  row.step();
  const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
  row.milliseconds.push_back(time.count());
}

Row weft_row(const std::string& name, const weft::train::OptimizerOptions& options,
             const OwnedSlice& owned) {
  const std::shared_ptr<Optimizer> optimizer =
      weft::train::make_optimizer(options, {owned}, weft::dist::Group());
  return {name, [optimizer] { optimizer->step(kRate, 0.5); }};
}

Row libtorch_row(const at::Tensor& master, const at::Tensor& gradient) {
  const at::Tensor first = at::zeros_like(master);
  const at::Tensor second = at::zeros_like(master);
  at::Tensor count = at::zeros({});
  return {"at::_fused_adamw_", [=]() mutable {
            count.add_(1);
            at::_fused_adamw_({master}, {gradient}, {first}, {second}, {}, {count}, kRate, 0.9,
                              0.95, 0.1, 1e-8, false, false);
          }};
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t rows = argc > 1 ? std::atoll(argv[1]) : 30'000;
  at::set_num_threads(argc > 2 ? std::atoi(argv[2]) : 1);
  const int64_t length = rows * kColumns;
  const at::Tensor gradient = at::randn({length});
  const OwnedSlice owned = {
      {"w", {rows, kColumns}, {}, 0, {0, length}}, at::randn({length}), gradient, 0.1};
  std::vector<Row> table;
  table.push_back(weft_row("adamw", weft::train::AdamwOptions(), owned));
  table.push_back(libtorch_row(at::randn({length}), gradient));
  table.push_back(weft_row("sgd", weft::train::SgdOptions(), owned));
  table.push_back(weft_row("lion", weft::train::LionOptions(), owned));
  table.push_back(weft_row("adafactor", weft::train::AdafactorOptions(), owned));
  table.push_back(weft_row("muon", weft::train::MuonOptions(), owned));
  for (int round = 0; round < kRounds; ++round) {
    for (Row& row : table) run(row);
  }
  std::printf("%lld elements, %d threads: ms per step\n", static_cast<long long>(length),
              at::get_num_threads());
  for (Row& row : table) {
    std::sort(row.milliseconds.begin(), row.milliseconds.end());
    std::printf("%-18s median %7.1f  least %7.1f\n", row.name.c_str(),
                row.milliseconds[row.milliseconds.size() / 2], row.milliseconds[0]);
  }
}
