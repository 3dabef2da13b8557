#include "weft/train/trainer/trainer.h"

#include <ATen/ATen.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "weft/core/error.h"
#include "weft/models/trains_exactly.h"
#include "weft/nn/kernels/select.h"
#include "weft/train/config/check_config.h"
#include "weft/train/metrics/flops.h"
#include "weft/train/trainer/check_run.h"
#include "weft/train/trainer/exact_step.h"
#include "weft/train/trainer/run_flops.h"
#include "weft/train/trainer/run_optimizer.h"

namespace weft::train {
namespace {

using Clock = std::chrono::steady_clock;

int64_t peak_rss_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

// Nothing is dropped while one lives.
class EvaluationMode {
 public:
  explicit EvaluationMode(models::CausalLM& model) : model_(model) { model_.eval(); }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;
  ~EvaluationMode() { model_.train(); }

 private:
  models::CausalLM& model_;
};

ShardOptions shard_options(const TrainConfig& config) {
  ShardOptions options;
  options.dtype = config.train.dtype == "bfloat16" ? at::kBFloat16 : at::kFloat;
  if (config.train.exact) {
    options.exact_sequences = config.batch.sequences;
    options.exact_together = std::max<int64_t>(1, plan_batch(config).microbatch);
  }
  return options;
}

void train_exactly(models::CausalLM& model) {
  auto* exact = dynamic_cast<models::TrainsExactly*>(&model);
  core::check<core::ConfigError>(exact != nullptr, "train.exact: ", model.config().family,
                                 ", expected a decoder; leave train.exact out");
  exact->train_exactly();
}

}  // namespace

dist::Mesh make_run_mesh(const TrainConfig& config, const dist::World& world) {
  check_world(config, world.size());
  return {world,
          {{"replica", config.mesh.replicas},
           {"data", config.mesh.dp},
           {"pipe", config.mesh.pipe},
           {"model", config.mesh.tp}}};
}

Trainer::Trainer(TrainConfig config, const dist::World& world, std::string tokenizer_path,
                 TrainedPart part)
    : config_(std::move(config)),
      tokenizer_path_(std::move(tokenizer_path)),
      part_(part),
      mesh_(make_run_mesh(config_, world)),
      schedule_(run_schedule(config_)) {
  const MeshGroups groups = mesh_groups(mesh_);
  check_run(config_, part_);
  if (config_.train.exact) {
    // Ranks with other kernels round otherwise.
    groups.all.check_agreement("kernels of train.exact", nn::kernels::active_kernel().name);
  }
  data_ = std::make_unique<TrainingData>(config_, tokenizer_path_, groups.all, groups.batch);
  const auto deferred =
      make_run_model(config_, part_, data_->vocab_size(), groups.model, groups.pipe.rank());
  model_ = deferred.model;
  models::TrainingOptions training;
  training.checkpointed.assign(model_->blocks().size(), config_.train.checkpoint_activations);
  training.dropout = config_.train.dropout;
  training.dropout_seed = static_cast<uint64_t>(config_.train.seed);
  training.sequence_parallel = config_.train.sequence_parallel;
  model_->set_training(training);
  if (config_.train.exact) train_exactly(*model_);
  ShardOptions options = shard_options(config_);
  options.partial_gradients = model_->partial_parameters();
  options.values = deferred.values;
  options.shard_frozen = part_ == TrainedPart::kAdapters && config_.lora.shard_frozen;
  sharded_ = shard_module(*model_, mesh_, model_->blocks(), options);
  optimizer_ = make_run_optimizer(config_, *sharded_);
  flops_per_token_ = run_flops_per_token(config_, model_->config(), part_);
  peak_flops_ = run_peak_flops(config_, groups.all);
}

void Trainer::resume(const Progress& progress) {
  progress_ = progress;
  optimizer_->set_num_steps(progress.step);
  sharded_->publish();
}

double Trainer::learning_rate() const {
  // A warm-up's first update would do nothing at rate 0.
  return train::learning_rate(schedule_, progress_.step + (schedule_.warmup_steps > 0 ? 1 : 0));
}

StepResult Trainer::step() {
  auto microbatches = data_->microbatches(progress_.samples);
  for (Microbatch& each : microbatches) each.tokens.step = static_cast<uint64_t>(progress_.step);
  const StageModel stage = language_model_stage(*model_, sharded_->groups().pipe);
  const StepResult result = compute_gradients(*sharded_, stage, microbatches, progress_.step + 1);
  optimizer_->step(learning_rate(), clip_scale(result.gradient_norm, config_.train.clip_norm));
  sharded_->publish();
  ++progress_.step;
  progress_.samples += config_.batch.sequences;
  progress_.tokens += result.num_targets;
  return result;
}

double Trainer::evaluated_sum(const std::vector<Microbatch>& microbatches) {
  const MeshGroups& groups = sharded_->groups();
  const StageModel stage = language_model_stage(*model_, groups.pipe);
  if (config_.train.exact) {
    return evaluate_exactly(*sharded_, stage, microbatches,
                            std::max<int64_t>(1, plan_batch(config_).microbatch));
  }
  at::Tensor sum = at::full({1}, evaluate_pipeline(stage, microbatches, groups.pipe), at::kDouble);
  sharded_->release();
  groups.batch.all_reduce(sum);
  groups.pipe.all_reduce(sum);
  return sum.item<double>();
}

std::optional<double> Trainer::evaluate() {
  if (!data_->has_evaluation()) return std::nullopt;
  const EvaluationMode mode(*model_);
  const MeshGroups& groups = sharded_->groups();
  const auto microbatches = data_->evaluation();
  const double sum = evaluated_sum(microbatches);
  const int64_t num_targets = count_targets(microbatches, groups.batch);
  return sum / static_cast<double>(std::max<int64_t>(1, num_targets));
}

StepMetrics Trainer::measure(const StepResult& result, double rate, double seconds) {
  StepMetrics metrics;
  metrics.step = progress_.step;
  metrics.loss = result.loss;
  metrics.grad_norm = result.gradient_norm;
  metrics.lr = rate;
  metrics.tokens = progress_.tokens;
  metrics.seconds = seconds;
  const int64_t processed = config_.batch.sequences * config_.batch.sequence_length;
  metrics.tokens_per_s = static_cast<double>(processed) / seconds;
  if (flops_per_token_ > 0) {
    metrics.mfu = model_flops_utilization(metrics.tokens_per_s, flops_per_token_, peak_flops_);
  }
  at::Tensor rss = at::full({1}, peak_rss_bytes(), at::kLong);
  sharded_->groups().all.all_reduce(rss, dist::ReduceOp::kMax);
  metrics.rss_bytes = rss.item<int64_t>();
  return metrics;
}

Trainer::Agreement Trainer::agree(const TrainerHooks& hooks) const {
  const int caught = hooks.caught_signal ? hooks.caught_signal() : 0;
  const bool has_written = hooks.has_written && hooks.has_written();
  at::Tensor any = at::tensor({caught, has_written ? 0 : 1}, at::kInt);
  sharded_->groups().all.all_reduce(any, dist::ReduceOp::kMax);
  return {any[0].item<int>(), any[1].item<int>() == 0};
}

bool Trainer::is_due(int64_t every) const {
  const bool is_last = progress_.step == config_.train.steps;
  return every > 0 && (progress_.step % every == 0 || is_last);
}

void Trainer::publish_if_due(const TrainerHooks& hooks, bool is_written) {
  if (!hooks.publish || !written_step_) return;
  const int64_t most = std::max(config_.checkpoint.max_lost, config_.checkpoint.every);
  if (!is_written && progress_.step - kept_step_ <= most) return;
  hooks.publish();
  kept_step_ = *std::exchange(written_step_, std::nullopt);
}

void Trainer::save(const TrainerHooks& hooks) {
  // The one before is visible once the next one begins.
  kept_step_ = written_step_.value_or(kept_step_);
  hooks.save();
  written_step_ = progress_.step;
}

int Trainer::run(const TrainerHooks& hooks) {
  kept_step_ = progress_.step;
  int signal = 0;
  while (progress_.step < config_.train.steps && signal == 0) {
    const auto start = Clock::now();
    const double rate = learning_rate();
    const StepResult result = step();
    StepMetrics metrics =
        measure(result, rate, std::chrono::duration<double>(Clock::now() - start).count());
    if (is_due(config_.eval.every)) metrics.eval_loss = evaluate();
    const Agreement agreement = agree(hooks);
    signal = agreement.signal;
    // Before the step is told of: whoever has seen step n finds all that was written while it ran.
    publish_if_due(hooks, agreement.publishes);
    if (hooks.on_step) hooks.on_step(metrics);
    const bool is_last = progress_.step == config_.train.steps;
    if (hooks.save && (signal != 0 || is_last || is_due(config_.checkpoint.every))) save(hooks);
  }
  return progress_.step == config_.train.steps ? 0 : signal;
}

}  // namespace weft::train
