#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/dist/mesh.h"
#include "weft/models/model.h"
#include "weft/train/config/train_config.h"
#include "weft/train/metrics/metrics_file.h"
#include "weft/train/optimizer/optimizer.h"
#include "weft/train/psdp/sharded_module.h"
#include "weft/train/schedule.h"
#include "weft/train/trainer/run_model.h"
#include "weft/train/trainer/train_step.h"
#include "weft/train/trainer/training_data.h"

namespace weft::train {

/// How far a run is: what a checkpoint keeps beside parameters and optimizer state.
struct Progress {
  /// Optimizer steps that are done.
  int64_t step = 0;
  /// Sequences of the run's order that were used.
  int64_t samples = 0;
  /// Targets with a loss.
  int64_t tokens = 0;
};

/// What someone who watches a run wants to know; called on every rank, in the order of steps.
struct TrainerHooks {
  /// After every step, once what was written while it ran is visible.
  std::function<void(const StepMetrics& metrics)> on_step;
  /// The signal that asks this rank to stop, or 0. If any rank has one, the run ends after this
  /// step, with a checkpoint.
  std::function<int()> caught_signal;
  /// After the steps for which it is due, and at the end.
  std::function<void()> save;
  /// True on a rank once its part of what was saved in the background is on disk.
  std::function<bool()> has_written;
  /// After the step in which the last rank has written, or when a crash would lose more than
  /// checkpoint.max_lost steps: waits for the writers and makes what was saved visible. Collective.
  std::function<void()> publish;
};

/// A model in training on a mesh: parameters, optimizer and data of one run.
class Trainer {
 public:
  /// Makes the mesh, the data (tokenized once), the model and the optimizer that `config`, which
  /// was checked, asks for. Collective over `world`; errors are alike on all ranks. Throws
  /// ConfigError, FormatError, IoError.
  Trainer(TrainConfig config, const dist::World& world, std::string tokenizer_path,
          TrainedPart part = TrainedPart::kAll);

  /// Steps from where the run is to its last one, or until it is asked to stop. Returns 0 at its
  /// end, else the signal: on all ranks the one with the largest number that a rank has caught.
  /// Collective. Throws as compute_gradients.
  int run(const TrainerHooks& hooks);
  /// One step. Collective.
  StepResult step();
  /// Mean loss over the evaluation's targets; none without one. Collective.
  std::optional<double> evaluate();

  const TrainConfig& config() const { return config_; }
  TrainedPart trained_part() const { return part_; }
  const std::string& tokenizer_path() const { return tokenizer_path_; }
  const dist::Mesh& mesh() const { return mesh_; }
  const TrainingData& data() const { return *data_; }
  const models::CausalLM& model() const { return *model_; }
  ShardedModule& sharded() { return *sharded_; }
  Optimizer& optimizer() { return *optimizer_; }
  const Progress& progress() const { return progress_; }
  /// Where a checkpoint was: the optimizer's state and the masters were put back before.
  void resume(const Progress& progress);
  /// The rate of the next step.
  double learning_rate() const;
  /// Of all ranks together, per second: run_peak_flops.
  double peak_flops() const { return peak_flops_; }

 private:
  // Of all ranks' losses.
  double evaluated_sum(const std::vector<Microbatch>& microbatches);
  StepMetrics measure(const StepResult& result, double rate, double seconds);
  // What the ranks do together after a step.
  struct Agreement {
    /// The ranks' signal, or 0.
    int signal = 0;
    bool publishes = false;
  };
  Agreement agree(const TrainerHooks& hooks) const;
  void publish_if_due(const TrainerHooks& hooks, bool is_written);
  void save(const TrainerHooks& hooks);
  bool is_due(int64_t every) const;

  TrainConfig config_;
  std::string tokenizer_path_;
  TrainedPart part_;
  dist::Mesh mesh_;
  Schedule schedule_;
  std::unique_ptr<TrainingData> data_;
  std::shared_ptr<models::CausalLM> model_;
  std::unique_ptr<ShardedModule> sharded_;
  std::unique_ptr<Optimizer> optimizer_;
  Progress progress_;
  // The steps of the checkpoint that a crash would leave, and of the one that is being written.
  int64_t kept_step_ = 0;
  std::optional<int64_t> written_step_;
  double peak_flops_ = 0;
  double flops_per_token_ = 0;
};

/// The mesh that [mesh] asks for. Collective. Throws ConfigError if it does not fit the world.
dist::Mesh make_run_mesh(const TrainConfig& config, const dist::World& world);

}  // namespace weft::train
