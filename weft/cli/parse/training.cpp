// Flags of the verbs that train, plan to or show what was trained.
#include "weft/cli/flags.h"
#include "weft/cli/parse/parse.h"
#include "weft/core/error.h"
#include "weft/dist/backends/names.h"

namespace weft::cli {
namespace {

using core::check;
using core::ConfigError;

constexpr int64_t kMaxAxis = 1'000'000;

constexpr char kAboutTrain[] =
    "Trains a model as CONFIG.toml says, on one process or many.\n"
    "The run's folder gets checkpoints, metrics.jsonl and TensorBoard event files. Ctrl-C, "
    "SIGTERM and SIGHUP save and stop; --resume goes on from the newest checkpoint, on any mesh.";

constexpr char kAboutLora[] =
    "Trains low-rank adapters (LoRA) beside the frozen weights of model.from, without one those of "
    "the installed model.\n"
    "Frozen weights may be quantized, in the file or by lora.quantize_bits. weft fuse makes one "
    "model of both.";

void add_mesh_flag(CLI::App& app, const char* flag, const char* name, const std::string& about,
                   TrainOptions& options) {
  app.add_option_function<std::string>(
      flag,
      [&options, flag, name](const std::string& text) {
        options.given.push_back({name, text, flag});
      },
      about);
}

// Adapters lie beside products that have no order of sums, so that training them takes no --exact.
std::optional<TrainOptions> parse_run(const char* verb, const char* about, const Args& args,
                                      bool trains_adapters) {
  CLI::App app(about, verb);
  TrainOptions options;
  options.trains_adapters = trains_adapters;
  options.command = command_of(verb, args);
  app.add_option("config", options.config_path, "the run's configuration");
  add_mesh_flag(app, "--replicas", "mesh.replicas", "copies of the parameters", options);
  add_mesh_flag(app, "--dp", "mesh.dp", "ranks that cut a replica's parameters", options);
  add_mesh_flag(app, "--tp", "mesh.tp", "ranks that cut every matrix", options);
  add_mesh_flag(app, "--pipe", "mesh.pipe", "pipeline stages", options);
  add_mesh_flag(app, "--backend", "mesh.backend", dist::backend_choices(), options);
  add_mesh_flag(app, "--steps", "train.steps", "optimizer steps", options);
  if (!trains_adapters) {
    app.add_flag_callback(
        "--exact",
        [&options] {
          options.given.push_back({"train.exact", "true", "--exact"});
        },
        "the same bits on every mesh and with any number of microbatches");
  }
  app.add_flag("--resume{newest}", options.resume,
               "go on from the newest checkpoint; --resume=auto begins where there is none, "
               "--resume=STEP goes back to an older one");
  if (!parse_flags(app, args, {"config"})) return std::nullopt;
  return options;
}

void add_planned_run_flags(CLI::App& app, PlannedRun& run) {
  app.add_option("file", run.config, "TOML file: [model], [mesh], [batch], [train], …");
  app.add_option("--replicas", run.replicas, "copies of the parameters (default: the file's)")
      ->check(whole_number(1, kMaxAxis));
  app.add_option("--dp", run.dp, "ranks that a copy is cut over (default: the file's)")
      ->check(whole_number(1, kMaxAxis));
  app.add_option("--pipe", run.pipe, "pipeline stages (default: the file's)")
      ->check(whole_number(1, kMaxAxis));
  app.add_option("--tp,--tensor-parallel-size", run.tp,
                 "ranks that every matrix is cut over (default: the file's)")
      ->check(whole_number(1, kMaxAxis));
}

}  // namespace

std::optional<TrainOptions> parse_train(const Args& args) {
  return parse_run("train", kAboutTrain, args, false);
}

std::optional<TrainOptions> parse_lora(const Args& args) {
  return parse_run("lora", kAboutLora, args, true);
}

std::optional<PlanOptions> parse_plan(const Args& args) {
  CLI::App app(
      "Predicts memory per rank, bytes per collective and step time of a training run: of the "
      "file's own mesh, or of the fastest meshes of --ranks ranks.",
      "plan");
  PlanOptions options;
  add_planned_run_flags(app, options.run);
  app.add_option("-n,--ranks", options.ranks, "ranks to find meshes for (default: the file's mesh)")
      ->check(whole_number(1, kMaxAxis));
  app.add_option("--hardware", options.hardware,
                 "a100, h100, h200, b200 or cpu, a core (default: cpu)");
  app.add_option("--top", options.top, "meshes to show (default: 8)")
      ->check(whole_number(1, kMaxAxis));
  app.add_flag("--json", options.is_json, "print one object");
  if (!parse_flags(app, args)) return std::nullopt;
  return options;
}

std::optional<PlotVerbOptions> parse_plot(const Args& args) {
  CLI::App app("Draws the training and evaluation loss of runs as an SVG file.", "plot");
  PlotVerbOptions options;
  options.plot.title = "loss";
  app.add_option("runs", options.runs, "folders of runs, or their metrics.jsonl");
  add_file_flags(app, options.out, options.force, "the SVG file to write");
  app.add_option("--smooth", options.plot.smoothing,
                 "smooth the curve: 0 (default) to below 1, e.g. 0.9");
  app.add_option("--from", options.first_step, "first step to draw (default: 1)")
      ->check(whole_number(1, INT64_MAX));
  app.add_option("--title", options.plot.title, "text above the chart (default: loss)");
  if (!parse_flags(app, args, {"--out"})) return std::nullopt;
  check<ConfigError>(!options.runs.empty(), "plot: no run given; name a run's folder");
  return options;
}

}  // namespace weft::cli
