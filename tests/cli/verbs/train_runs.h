#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "tests/cli/weft_command.h"
#include "tests/core/temp_dir.h"
#include "weft/train/metrics/metrics_file.h"

namespace weft::cli {

/// The file of a run of a tiny model in `dir`/`name`; `more` are further lines of it.
inline std::string write_config(const testing::TempDir& dir, const std::string& name,
                                const std::string& more = "", int steps = 8, int microbatch = 1) {
  const std::string run = dir.path() + "/" + name;
  return dir.write(
      name + ".toml",
      "model.hidden_size = 24\nmodel.num_layers = 2\nmodel.num_heads = 6\n"
      "model.num_kv_heads = 2\nmodel.tokenizer = \"" +
          std::string(kByteTokenizer) +
          "\"\nbatch.sequences = 12\nbatch.microbatch = " + std::to_string(microbatch) +
          "\nbatch.sequence_length = 32\ntrain.seed = 3\noptimizer.lr = 5e-3\n"
          "schedule.warmup_steps = 2\ndata.eval_fraction = 0.1\neval.every = 4\n"
          "eval.sequences = 5\ndata.train = [\"" +
          kConstitution + "\"]\ncheckpoint.every = 4\ncheckpoint.folder = \"" + run +
          "\"\ntrain.steps = " + std::to_string(steps) + "\n" + more);
}

/// A step at a rate of nothing, to evaluate the model in `folder`.
inline std::string write_measure(
    const testing::TempDir& dir, const std::string& name, const std::string& folder,
    const std::string& more = "train.steps = 1\noptimizer.lr = 1e-9\n") {
  return dir.write(name + ".toml",
                   "model.from = \"" + folder +
                       "\"\nbatch.sequences = 4\nbatch.sequence_length = 32\n"
                       "data.eval_fraction = 0.1\neval.every = 1\neval.sequences = 5\n"
                       "data.train = [\"" +
                       std::string(kConstitution) + "\"]\ncheckpoint.folder = \"" + dir.path() +
                       "/" + name + "\"\n" + more);
}

/// weft train with time for a small machine.
inline test::CommandResult train(const std::vector<std::string>& args) {
  test::CommandOptions options;
  options.timeout = std::chrono::minutes(5);
  return weft(joined({"train"}, args), options);
}

/// What the run has noted of its steps.
inline std::vector<train::StepMetrics> metrics_of(const testing::TempDir& dir,
                                                  const std::string& name) {
  return train::read_metrics(dir.path() + "/" + name + "/" + train::kMetricsName);
}

}  // namespace weft::cli
