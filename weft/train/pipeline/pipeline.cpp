#include "weft/train/pipeline/pipeline.h"

#include <ATen/ATen.h>

#include <cstdint>
#include <deque>
#include <utility>

#include "weft/train/pipeline/stage_schedule.h"

namespace weft::train {
namespace {

// Microbatches of an evaluation that the first stage may be ahead of the last, by stages.
constexpr int64_t kAhead = 4;

// One rank's place between its neighbours.
class Stage {
 public:
  Stage(const StageModel& model, const dist::Group& pipe) : model_(model), pipe_(pipe) {}

  bool is_first() const { return pipe_.rank() == 0; }
  bool is_last() const { return pipe_.rank() + 1 == pipe_.size(); }

  // Undefined on the first stage.
  at::Tensor receive_input(const Microbatch& microbatch) const {
    if (is_first()) return {};
    at::Tensor x = model_.make_input(microbatch);
    pipe_.receive(x, pipe_.rank() - 1);
    return x;
  }
  void send_output(const at::Tensor& x) const { pipe_.send(x, pipe_.rank() + 1); }
  at::Tensor receive_gradient(const at::Tensor& output) const {
    at::Tensor gradient = at::empty(output.sizes(), output.options());
    pipe_.receive(gradient, pipe_.rank() + 1);
    return gradient;
  }
  // What a rank's sequences did not use has no gradient.
  void send_gradient(const at::Tensor& input) const {
    pipe_.send(input.grad().defined() ? input.grad() : at::zeros_like(input), pipe_.rank() - 1);
  }

 private:
  const StageModel& model_;
  const dist::Group& pipe_;
};

// A step on one stage.
class PipelineRun {
 public:
  PipelineRun(ShardedModule& sharded, const StageModel& model, double divisor)
      : sharded_(sharded), model_(model), stage_(model, sharded.groups().pipe), divisor_(divisor) {}

  void forward(const Microbatch& microbatch) {
    Kept kept;
    kept.input = stage_.receive_input(microbatch);
    if (kept.input.defined()) kept.input.set_requires_grad(true);
    kept.output = model_.forward(microbatch, kept.input);
    if (stage_.is_last()) {
      kept.output = kept.output / divisor_;
      loss_ += kept.output.item<double>();
    } else {
      stage_.send_output(kept.output);
    }
    kept_.push_back(std::move(kept));
  }

  // Of the oldest microbatch that is left.
  void backward() {
    const Kept kept = std::move(kept_.front());
    kept_.pop_front();
    sharded_.backward(kept.output,
                      stage_.is_last() ? at::Tensor() : stage_.receive_gradient(kept.output));
    if (!stage_.is_first()) stage_.send_gradient(kept.input);
  }

  double loss() const { return loss_; }

 private:
  // Of a microbatch between its forward and its backward.
  struct Kept {
    at::Tensor input, output;
  };

  ShardedModule& sharded_;
  const StageModel& model_;
  Stage stage_;
  double divisor_;
  double loss_ = 0;
  std::deque<Kept> kept_;
};

}  // namespace

StageModel language_model_stage(models::CausalLM& model, const dist::Group& pipe) {
  const bool is_last = pipe.rank() + 1 == pipe.size();
  StageModel stage;
  stage.forward = [&model, is_last](const Microbatch& microbatch, const at::Tensor& x_BTD) {
    const at::Tensor y_BTD = model.forward_stage(microbatch.tokens, x_BTD);
    return is_last ? model.loss_sum(y_BTD, microbatch.targets_BT) : y_BTD;
  };
  stage.make_input = [&model](const Microbatch& microbatch) {
    return model.make_stage_input(microbatch.tokens);
  };
  return stage;
}

double run_pipeline(ShardedModule& sharded, const StageModel& model,
                    const std::vector<Microbatch>& microbatches, double divisor) {
  const dist::Group& pipe = sharded.groups().pipe;
  PipelineRun run(sharded, model, divisor);
  for (const StageTask& task : stage_schedule(pipe.size(), pipe.rank(), std::ssize(microbatches))) {
    if (task.is_forward) {
      run.forward(microbatches[static_cast<size_t>(task.microbatch)]);
    } else {
      run.backward();
    }
  }
  return run.loss();
}

double evaluate_pipeline(const StageModel& model, const std::vector<Microbatch>& microbatches,
                         const dist::Group& pipe) {
  const at::NoGradGuard no_grad;
  const Stage stage(model, pipe);
  double loss = 0;
  int64_t done = 0;
  for (const Microbatch& microbatch : microbatches) {
    const at::Tensor output = model.forward(microbatch, stage.receive_input(microbatch));
    if (stage.is_last()) {
      loss += output.item<double>();
    } else {
      stage.send_output(output);
    }
    // Messages that nobody has taken yet lie in memory.
    if (++done % (kAhead * pipe.size()) == 0) pipe.barrier();
  }
  return loss;
}

}  // namespace weft::train
