#include "weft/train/optimizer/optimizer.h"

#include "weft/core/error.h"
#include "weft/train/optimizer/adafactor.h"
#include "weft/train/optimizer/elementwise.h"
#include "weft/train/optimizer/muon.h"
#include "weft/train/slice_runs.h"

namespace weft::train {
namespace {

void check_values(const at::Tensor& values, const char* what, const Slice& slice) {
  core::check<core::ShapeError>(values.defined() && values.dim() == 1 &&
                                    values.scalar_type() == at::kFloat && values.is_contiguous() &&
                                    values.numel() == slice.elements.length,
                                "train.optimizer: ", what, " of ", slice.name, ": expected ",
                                slice.elements.length, " contiguous float32 values in one dim");
}

void check_slices(const std::vector<OwnedSlice>& slices) {
  for (const OwnedSlice& owned : slices) {
    check_slice(owned.slice, core::join("train.optimizer: ", owned.slice.name));
    check_values(owned.master, "master", owned.slice);
    check_values(owned.gradient, "gradient", owned.slice);
    core::check<core::ConfigError>(owned.weight_decay >= 0, "train.optimizer: weight_decay of ",
                                   owned.slice.name, ": expected at least 0, got ",
                                   owned.weight_decay);
  }
}

// One overload for each row of OptimizerOptions.
struct Maker {
  std::vector<OwnedSlice> slices;
  const dist::Group& group;

  std::unique_ptr<Optimizer> operator()(const AdamwOptions& options) {
    return make_adamw(options, std::move(slices));
  }
  std::unique_ptr<Optimizer> operator()(const SgdOptions& options) {
    return make_sgd(options, std::move(slices));
  }
  std::unique_ptr<Optimizer> operator()(const LionOptions& options) {
    return make_lion(options, std::move(slices));
  }
  std::unique_ptr<Optimizer> operator()(const AdafactorOptions& options) {
    return make_adafactor(options, std::move(slices), group);
  }
  std::unique_ptr<Optimizer> operator()(const MuonOptions& options) {
    return make_muon(options, std::move(slices), group);
  }
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options,
                                          std::vector<OwnedSlice> slices,
                                          const dist::Group& group) {
  check_slices(slices);
  return std::visit(Maker{std::move(slices), group}, options);
}

}  // namespace weft::train
