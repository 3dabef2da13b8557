#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "weft/cli/flags.h"
#include "weft/cli/model/session.h"
#include "weft/cli/streams.h"
#include "weft/cli/verbs/run.h"
#include "weft/cli/verbs/train_config.h"
#include "weft/core/error.h"
#include "weft/core/files/file_lock.h"
#include "weft/core/terminal/printable.h"
#include "weft/dist/launch/run_together.h"
#include "weft/io/check_finite.h"
#include "weft/nn/layers/cpu_speed.h"
#include "weft/train/config/check_config.h"
#include "weft/train/config/config_json.h"
#include "weft/train/config/read_config.h"
#include "weft/train/metrics/event_file.h"
#include "weft/train/metrics/human_text.h"
#include "weft/train/metrics/progress_line.h"
#include "weft/train/plan/plan_text.h"
#include "weft/train/plan/sizes_of_config.h"
#include "weft/train/trainer/check_run.h"
#include "weft/train/trainer/run_checkpoint.h"
#include "weft/train/trainer/run_tokenizer.h"
#include "weft/train/trainer/trainer.h"

namespace weft::cli {
namespace {

using train::TrainConfig;
using train::Trainer;

std::string tokenizer_path(const TrainConfig& config) {
  if (!config.model.tokenizer.empty()) return config.model.tokenizer;
  return config.model.from.empty() ? model_path("") : config.model.from;
}

train::RunStart start_of(const TrainOptions& options) {
  return options.resume.empty() ? train::RunStart()
                                : train::parse_run_start(options.resume, "--resume");
}

train::TrainedPart part_of(const TrainOptions& options) {
  return options.trains_adapters ? train::TrainedPart::kAdapters : train::TrainedPart::kAll;
}

TrainConfig read_checked(const TrainOptions& options) {
  TrainConfig config = train::read_train_config(options.config_path, options.given);
  if (options.trains_adapters && config.model.from.empty()) config.model.from = model_path("");
  train::complete_model(config);
  train::check_config(config);
  train::check_inputs(config);
  train::find_start(config, start_of(options));
  const auto vocab_size = static_cast<int64_t>(
      train::open_run_tokenizer(tokenizer_path(config)).tokenizer().vocab_size());
  if (config.model.from.empty() && config.model.vocab_size == 0) {
    config.model.vocab_size = vocab_size;
  }
  const train::ModelSizes sizes = train::sizes_of(train::run_model_config(config, vocab_size));
  train::check_model_fits(
      config, {sizes.num_layers, sizes.num_heads, sizes.vocab_size, sizes.intermediate_size});
  train::check_run(config, part_of(options), vocab_size);
  return config;
}

// What rank 0 writes of a run: a line for people, metrics.jsonl and an event file.
class RunLog {
 public:
  RunLog(const TrainConfig& config, int64_t resumed_step)
      : config_(config),
        metrics_(std::filesystem::path(config.checkpoint.folder) / train::kMetricsName,
                 resumed_step) {
    if (config.log.tensorboard) events_.emplace(config.checkpoint.folder, resumed_step);
  }

  void write(const train::StepMetrics& metrics) {
    metrics_.append(metrics);
    eta_.add(metrics.seconds);
    if (events_.has_value()) events_->append(metrics.step, scalars_of(metrics));
    const bool is_last = metrics.step == config_.train.steps;
    if (metrics.step % config_.log.every != 0 && !is_last) return;
    const double left = eta_.seconds_left(config_.train.steps - metrics.step);
    std::fprintf(stderr, "%s\n", train::progress_line(metrics, config_.train.steps, left).c_str());
  }

 private:
  static train::Scalars scalars_of(const train::StepMetrics& metrics) {
    train::Scalars scalars = {{"train/loss", metrics.loss},
                              {"train/grad_norm", metrics.grad_norm},
                              {"train/lr", metrics.lr},
                              {"throughput/tokens_per_s", metrics.tokens_per_s},
                              {"memory/rss_bytes", static_cast<double>(metrics.rss_bytes)}};
    if (metrics.mfu.has_value()) scalars.emplace_back("throughput/mfu", *metrics.mfu);
    if (metrics.eval_loss.has_value()) scalars.emplace_back("eval/loss", *metrics.eval_loss);
    return scalars;
  }

  const TrainConfig& config_;
  train::MetricsFile metrics_;
  std::optional<train::EventFile> events_;
  train::EtaEstimate eta_;
};

// What a new model's run will take; of one that is read, what it has taken.
void print_sizes(Trainer& trainer) {
  if (trainer.config().model.from.empty()) {
    TrainConfig config = trainer.config();
    const auto job = train::plan_job(config, model_sizes(config));
    std::fprintf(stderr, "%s\n", train::run_header(job).c_str());
    return;
  }
  uint64_t share = 0, elements = 0, frozen = 0;
  for (const auto& unit : trainer.sharded().units()) {
    share += unit->parameter_bytes() + unit->gradient_bytes() + unit->master_bytes();
    elements += static_cast<uint64_t>(unit->layout().num_elements());
    frozen += unit->frozen_bytes();
  }
  std::string held;
  if (frozen > 0) {
    held =
        core::join(" and ", train::bytes_text(static_cast<double>(frozen)), " of frozen weights");
  }
  std::fprintf(stderr,
               "%s parameters on a model rank; %s of parameters, gradients and masters%s on this "
               "one; %lld sequences an epoch\n",
               train::count_text(static_cast<double>(elements)).c_str(),
               train::bytes_text(static_cast<double>(share)).c_str(), held.c_str(),
               static_cast<long long>(trainer.data().num_sequences()));
}

void print_header(Trainer& trainer) {
  print_sizes(trainer);
  const bool is_given = trainer.config().log.peak_flops > 0;
  std::fprintf(stderr, "peak    %sflop/s of all ranks, %s: what MFU is the share of\n",
               train::count_text(trainer.peak_flops()).c_str(),
               is_given ? "given" : "measured by a matrix product");
}

int train_on_ranks(const TrainConfig& config, const TrainOptions& options,
                   const dist::World& world) {
  std::optional<core::FileLock> lock;
  dist::run_together(world, [&] {
    if (world.rank() != 0) return;
    if (!config.model.from.empty()) io::check_finite(*io::TensorFile::open(config.model.from));
    lock.emplace(train::lock_run(config.checkpoint.folder));
  });
  Trainer trainer(config, world, tokenizer_path(config), part_of(options));
  train::RunCheckpoints checkpoints(trainer);
  const std::vector<std::string> notes = checkpoints.load(start_of(options));
  std::optional<RunLog> log;
  if (world.rank() == 0) {
    for (const std::string& note : notes)
      std::fprintf(stderr, "resumed: %s\n", core::printable(note).c_str());
    print_header(trainer);
    log.emplace(trainer.config(), trainer.progress().step);
  }
  watch_interrupt();
  watch_termination();
  train::TrainerHooks hooks;
  hooks.on_step = [&](const train::StepMetrics& metrics) {
    if (log.has_value()) log->write(metrics);
  };
  hooks.caught_signal = caught_signal;
  hooks.save = [&] { checkpoints.save(); };
  hooks.has_written = [&] { return checkpoints.has_written(); };
  hooks.publish = [&] { checkpoints.finish(); };
  const int signal = trainer.run(hooks);
  checkpoints.finish();
  if (signal == 0) return 0;
  if (world.rank() == 0) {
    std::fprintf(stderr, "stopped after step %lld; --resume goes on from there\n",
                 static_cast<long long>(trainer.progress().step));
  }
  return 128 + signal;
}

// Each value by its name, whether it came from the file, a flag or the environment; hosts may have
// other numbers of cores, and the model elsewhere, whose bytes are compared.
Args agreed_arguments(const TrainConfig& config, const TrainOptions& options) {
  Args agreed = {"resume = " + options.resume};
  const core::Json sections = train::config_to_json(config);
  for (const auto& [section, keys] : sections.items()) {
    for (const auto& [key, value] : keys.items()) {
      const std::string name = core::join(section, ".", key);
      if (name == "train.threads" || name == "model.from") continue;
      agreed.push_back(core::join(name, " = ", core::dump_json(value)));
    }
  }
  return agreed;
}

}  // namespace

int run_train(const TrainOptions& options) {
  const TrainConfig config = read_checked(options);
  nn::use_fast_cpu();
  const RankRequest request{config.mesh.num_ranks(), "the mesh", config.train.threads,
                            config.mesh.backend, agreed_arguments(config, options)};
  return run_ranks(
      request, options.command, [] {},
      [&](const dist::World& world) { return train_on_ranks(config, options, world); });
}

}  // namespace weft::cli
