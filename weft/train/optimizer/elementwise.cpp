#include "weft/train/optimizer/elementwise.h"

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "weft/core/error.h"

namespace weft::train {
namespace {

// Numbers of one thread's piece: some tens of microseconds, and few enough for a cache.
constexpr int64_t kPieceLength = int64_t{1} << 15;

// Whether b begins where a ends.
bool adjoins(const at::Tensor& a, const at::Tensor& b) {
  return a.is_alias_of(b) && a.const_data_ptr<float>() + a.numel() == b.const_data_ptr<float>();
}

at::Tensor grown(const at::Tensor& a, int64_t by) {
  return a.as_strided({a.numel() + by}, {1}, a.storage_offset());
}

float* data_of(const at::Tensor& tensor, int64_t start) {
  return tensor.defined() ? tensor.mutable_data_ptr<float>() + start : nullptr;
}

}  // namespace

ElementwiseOptimizer::ElementwiseOptimizer(std::vector<OwnedSlice> slices,
                                           std::vector<std::string> state_names)
    : slices_(std::move(slices)), state_names_(std::move(state_names)) {
  int64_t length = 0;
  for (const OwnedSlice& owned : slices_) length += owned.master.numel();
  const at::Device device = slices_.empty() ? at::Device(at::kCPU) : slices_[0].master.device();
  for (size_t i = 0; i < state_names_.size(); ++i) {
    states_.push_back(at::zeros({length}, at::TensorOptions(device).dtype(at::kFloat)));
  }
  make_runs();
  make_pieces();
}

void ElementwiseOptimizer::make_runs() {
  int64_t start = 0;
  for (const OwnedSlice& owned : slices_) {
    const int64_t length = owned.master.numel();
    if (length == 0) continue;
    if (!runs_.empty() && runs_.back().weight_decay == owned.weight_decay &&
        adjoins(runs_.back().master, owned.master) &&
        adjoins(runs_.back().gradient, owned.gradient)) {
      UpdateRun& run = runs_.back();
      run.master = grown(run.master, length);
      run.gradient = grown(run.gradient, length);
      for (at::Tensor& state : run.states) {
        if (state.defined()) state = grown(state, length);
      }
    } else {
      UpdateRun run{owned.master, owned.gradient, {}, owned.weight_decay};
      for (size_t i = 0; i < states_.size(); ++i) {
        run.states.at(i) = states_[i].narrow(0, start, length);
      }
      runs_.push_back(std::move(run));
    }
    start += length;
  }
}

void ElementwiseOptimizer::make_pieces() {
  for (size_t run = 0; run < runs_.size(); ++run) {
    const int64_t length = runs_[run].master.numel();
    for (int64_t start = 0; start < length; start += kPieceLength) {
      pieces_.push_back({run, start, std::min(kPieceLength, length - start)});
    }
  }
}

std::vector<UpdateNumbers> ElementwiseOptimizer::numbers_by_run(double learning_rate,
                                                                double gradient_scale) const {
  std::vector<UpdateNumbers> by_run(runs_.size(), numbers(learning_rate, gradient_scale));
  for (size_t i = 0; i < runs_.size(); ++i) {
    by_run[i].keep = static_cast<float>(1 - learning_rate * runs_[i].weight_decay);
  }
  return by_run;
}

void ElementwiseOptimizer::step_by_tensors(double learning_rate, double gradient_scale) {
  ++num_steps_;
  const auto by_run = numbers_by_run(learning_rate, gradient_scale);
  for (size_t i = 0; i < runs_.size(); ++i) update_tensors(runs_[i], by_run[i]);
}

void ElementwiseOptimizer::step(double learning_rate, double gradient_scale) {
  if (!runs_.empty() && !runs_[0].master.is_cpu()) {
    step_by_tensors(learning_rate, gradient_scale);
    return;
  }
  ++num_steps_;
  const auto by_run = numbers_by_run(learning_rate, gradient_scale);
  const UpdateFunction update = function();
  at::parallel_for(0, static_cast<int64_t>(pieces_.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Piece& piece = pieces_[static_cast<size_t>(i)];
      const UpdateRun& run = runs_[piece.run];
      update(
          {data_of(run.master, piece.start), data_of(run.gradient, piece.start),
           data_of(run.states[0], piece.start), data_of(run.states[1], piece.start), piece.length},
          by_run[piece.run]);
    }
  });
}

std::vector<StateTensor> ElementwiseOptimizer::state() {
  std::vector<StateTensor> all;
  int64_t start = 0;
  for (const OwnedSlice& owned : slices_) {
    const int64_t length = owned.master.numel();
    all.push_back({"master", owned.slice, owned.master, false});
    for (size_t i = 0; i < states_.size(); ++i) {
      all.push_back({state_names_[i], owned.slice, states_[i].narrow(0, start, length), false});
    }
    start += length;
  }
  return all;
}

}  // namespace weft::train
