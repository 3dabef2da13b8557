#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>

#include "tests/cli/processes.h"
#include "tests/cli/verbs/train_runs.h"
#include "tests/cli/weft_command.h"
#include "tests/core/error_text.h"
#include "tests/core/temp_dir.h"
#include "weft/train/checkpoint/folder.h"
#include "weft/train/metrics/flops.h"
#include "weft/train/metrics/metrics_file.h"
#include "weft/train/plan/model_sizes.h"

namespace weft::cli {
namespace {

using testing::TempDir;
using Strings = std::vector<std::string>;

void expect_the_same_on_every_mesh(const std::string& optimizer) {
  const TempDir dir;
  const std::string more = "optimizer.name = \"" + optimizer + "\"\n";
  const auto whole = train({write_config(dir, "whole", more)});
  ASSERT_EQ(whole.status, 0) << whole.err;
  const auto expected = metrics_of(dir, "whole");
  ASSERT_EQ(expected.size(), 8U);
  EXPECT_LT(expected.back().loss, expected.front().loss - 0.5);
  const std::vector<std::pair<std::string, Strings>> meshes = {
      {"tp2", {"--tp", "2"}},
      {"tp2_as_on_hosts", {"--tp", "2", "--backend", "hierarchical"}},
      {"dp3", {"--dp", "3"}},
      {"all4", {"--replicas", "2", "--dp", "2"}},
      {"pipe2", {"--pipe", "2"}},
      {"pipe4", {"--pipe", "2", "--dp", "2"}},
      {"cut_sequences", {"--tp", "2"}},
      {"cut_stages", {"--pipe", "2", "--tp", "2"}}};
  for (const auto& [name, flags] : meshes) {
    const std::string extra = name.starts_with("cut_") ? "train.sequence_parallel = true\n" : "";
    const auto result = train(joined({write_config(dir, name, more + extra)}, flags));
    ASSERT_EQ(result.status, 0) << result.err;
    const auto got = metrics_of(dir, name);
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_NEAR(got[i].loss, expected[i].loss, 1e-4 * expected[i].loss) << name << " step " << i;
      EXPECT_EQ(got[i].eval_loss.has_value(), expected[i].eval_loss.has_value());
      if (got[i].eval_loss.has_value()) {
        EXPECT_NEAR(*got[i].eval_loss, *expected[i].eval_loss, 1e-4 * *expected[i].eval_loss);
      }
    }
  }
}

TEST(TrainVerb, GivesTheSameLossesOnEveryMesh) { expect_the_same_on_every_mesh("adamw"); }

TEST(TrainVerb, GivesTheSameLossesOnEveryMeshWithMuon) { expect_the_same_on_every_mesh("muon"); }

// The model that was trained is the one that is converted, read by other verbs and trained further.
TEST(TrainVerb, ConvertsARunToAFolderThatOtherVerbsRead) {
  const TempDir dir;
  expect_success(train({write_config(dir, "run", "", 3), "--dp", "2"}));
  const std::string out = dir.path() + "/model";
  expect_success(weft({"convert", dir.path() + "/run", out}));
  const double expected = last_eval(dir, "run");
  const auto measured =
      weft_json({"perplexity", out, "--file", kConstitution, "--json", "--ctx-size", "32"});
  EXPECT_NEAR(measured.at("mean_loss").get<double>(), expected, 0.3);
  for (const std::string& from :
       {dir.path() + "/run", train::checkpoint_path(dir.path() + "/run", 3)}) {
    const auto none = train({write_measure(dir, "more", from), "--tp", "2"});
    EXPECT_NE(none.err.find("model.from: '" + from +
                            "' is a run or a checkpoint of one, expected a Hugging Face folder or "
                            "a .gguf; name what weft convert makes of it, or weft fuse of "
                            "adapters\n"),
              std::string::npos)
        << none.err;
  }
  expect_success(train({write_measure(dir, "more", out), "--tp", "2"}));
  EXPECT_NEAR(last_eval(dir, "more"), expected, 1e-4);
  const auto refused = weft({"convert", dir.path() + "/run", out + ".gguf"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_NE(refused.err.find("model.gguf', expected a folder, which a checkpoint becomes; "),
            std::string::npos)
      << refused.err;
}

TEST(LoraVerb, TrainsAdaptersOnEveryMeshAndFusesThem) {
  const TempDir dir;
  expect_success(train({write_config(dir, "run", "", 3)}));
  const std::string base = dir.path() + "/model";
  expect_success(weft({"convert", dir.path() + "/run", base}));
  const std::string more =
      "train.steps = 4\noptimizer.lr = 1e-2\nlora.rank = 4\nschedule.name = \"constant\"\n";
  expect_success(weft({"lora", write_measure(dir, "whole", base, more)}));
  expect_success(weft({"lora", write_measure(dir, "cut", base, more), "--tp", "2", "--dp", "2"}));
  expect_success(weft({"lora", write_measure(dir, "stages", base, more), "--pipe", "2"}));
  const double expected = last_eval(dir, "whole");
  EXPECT_LT(expected, last_eval(dir, "run") - 0.01);
  EXPECT_NEAR(last_eval(dir, "cut"), expected, 1e-4);
  EXPECT_NEAR(last_eval(dir, "stages"), expected, 1e-4);
  const std::string fused = dir.path() + "/fused";
  expect_success(weft({"fuse", dir.path() + "/cut", fused}));
  expect_success(train({write_measure(dir, "fused_run", fused)}));
  EXPECT_NEAR(last_eval(dir, "fused_run"), expected, 1e-4);
  const auto refused = weft({"convert", dir.path() + "/cut", dir.path() + "/no"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_NE(refused.err.find("has adapters alone; weft fuse makes a model of them"),
            std::string::npos)
      << refused.err;
}

// The last stage alone has the head.
TEST(LoraVerb, TrainsAdaptersThatNotEveryStageHas) {
  const TempDir dir;
  expect_success(train({write_config(dir, "run", "model.tied = false\n", 3)}));
  const std::string base = dir.path() + "/model";
  expect_success(weft({"convert", dir.path() + "/run", base}));
  const std::string more =
      "train.steps = 3\noptimizer.lr = 1e-2\nlora.targets = [\"q_proj\", \"lm_head\"]\n";
  expect_success(weft({"lora", write_measure(dir, "whole", base, more)}));
  expect_success(weft({"lora", write_measure(dir, "stages", base, more), "--pipe", "2"}));
  EXPECT_NEAR(last_eval(dir, "stages"), last_eval(dir, "whole"), 1e-4);
}

TEST(TrainVerb, TellsWhatShareOfThePeakIsUsed) {
  const TempDir dir;
  const std::string given = "log.peak_flops = 1e9\n";
  const auto run = train({write_config(dir, "given", given, 2), "--dp", "2"});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_NE(run.err.find("peak    2.00 Gflop/s of all ranks, given"), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("  MFU "), std::string::npos) << run.err;
  const train::ModelSizes sizes{259, 24, 2, 6, 2, 4, 64, true, false, false};
  const double flops = train::flops_per_token({train::num_matmul_parameters(sizes), 2 * 24, 32});
  for (const train::StepMetrics& step : metrics_of(dir, "given")) {
    EXPECT_NEAR(step.mfu.value_or(0), step.tokens_per_s * flops / 2e9, 1e-9);
  }
  const auto measured = train({write_config(dir, "measured", "", 2)});
  ASSERT_EQ(measured.status, 0) << measured.err;
  EXPECT_NE(measured.err.find("of all ranks, measured"), std::string::npos) << measured.err;
  EXPECT_GT(metrics_of(dir, "measured").back().mfu.value_or(0), 0);
}

void expect_a_save_at(int signal) {
  const TempDir dir;
  const std::string config = write_config(dir, "run", "checkpoint.async = true\n", 5000);
  test::BackgroundCommand run({kWeft, "train", config, "--dp", "2"});
  ASSERT_TRUE(run.wait_for_output("step    3/5000"));
  run.signal(signal);
  const auto result = run.finish();
  EXPECT_EQ(result.status, 128 + signal) << result.err;
  EXPECT_NE(result.err.find("--resume goes on from there"), std::string::npos) << result.err;
  const auto steps = train::list_checkpoints(dir.path() + "/run");
  ASSERT_FALSE(steps.empty());
  EXPECT_EQ(steps.back(), metrics_of(dir, "run").back().step);
}

TEST(TrainVerb, SavesAndStopsWhenItIsInterrupted) { expect_a_save_at(SIGINT); }

TEST(TrainVerb, SavesAndStopsWhenItIsTerminated) { expect_a_save_at(SIGTERM); }

TEST(TrainVerb, SavesAndStopsWhenItsTerminalCloses) { expect_a_save_at(SIGHUP); }

// A checkpoint that was written while training went on is there for whoever kills the run then.
TEST(TrainVerb, ShowsABackgroundCheckpointOnceAllRanksHaveWritten) {
  const TempDir dir;
  const std::string more = "checkpoint.async = true\ncheckpoint.every = 50\n";
  const std::string config = write_config(dir, "run", "", 5000);
  std::string text = core::read_text_file(config, 1 << 20);
  text.replace(text.find("checkpoint.every = 4\n"), 21, more);
  dir.write("run.toml", text);
  test::BackgroundCommand run({kWeft, "train", config, "--dp", "2"});
  ASSERT_TRUE(run.wait_for_output("step   90/5000"));
  for (const auto& [rank, pid] : ranks_of(run.pid())) ::kill(pid, SIGKILL);
  run.finish();
  EXPECT_EQ(train::list_checkpoints(dir.path() + "/run"), (std::vector<int64_t>{50}));
}

TEST(TrainVerb, KeepsOtherRunsOutOfItsFolder) {
  const TempDir dir;
  const std::string config = write_config(dir, "run", "", 5000);
  // A folder with a checkpoint would be refused for that.
  std::string text = core::read_text_file(config, 1 << 20);
  text.replace(text.find("checkpoint.every = 4\n"), 21, "checkpoint.every = 5000\n");
  dir.write("run.toml", text);
  test::BackgroundCommand run({kWeft, "train", config});
  ASSERT_TRUE(run.wait_for_output("step    1/5000"));
  const auto second =
      train({write_config(dir, "run", "train.dtype = \"bfloat16\"\n", 9), "--dp", "2"});
  EXPECT_EQ(second.status, 5) << second.err;
  const std::string beginning = "weft: IoError: " + dir.path() + "/run/lock: held by process ";
  EXPECT_EQ(second.err.substr(0, beginning.size()), beginning);
  EXPECT_NE(second.err.find("; wait until it ends, or use another folder\n"), std::string::npos);
  EXPECT_EQ(std::count(second.err.begin(), second.err.end(), '\n'), 1) << "of all ranks one line";
  run.signal(SIGKILL);
  run.finish();
}

TEST(TrainVerb, TellsOnceOfDocumentsWhoseEndsAreLeftOut) {
  const TempDir dir;
  std::string lines;
  for (const int length : {2, 100, 3, 90, 5, 8}) {
    lines += R"({"text": ")" + std::string(static_cast<size_t>(length), 'a') + "\"}\n";
  }
  const std::string documents = dir.write("documents.jsonl", lines);
  std::string text = core::read_text_file(write_config(dir, "run", "", 2), 1 << 20);
  text = weft::testing::replaced(text, "data.eval_fraction = 0.1\neval.every = 4\n",
                                 "data.pack = false\n");
  text = weft::testing::replaced(text, kConstitution, documents);
  const auto result = train({dir.write("run.toml", text), "--dp", "2"});
  EXPECT_EQ(result.status, 0) << result.err;
  const std::string expected =
      "weft: warn: DIR/run.toml:12:13: data.pack: 2 of 6 documents to train on are longer than "
      "batch.sequence_length 32; their ends are left out\n";
  const std::string got = weft::testing::replaced(result.err, dir.path(), "DIR");
  EXPECT_NE(got.find(expected), std::string::npos) << got;
  EXPECT_EQ(got.find("their ends"), got.rfind("their ends")) << got;
}

void expect_refusal(const Strings& args, const std::string& text) {
  const auto result = train(args);
  EXPECT_EQ(result.status, 2) << result.err;
  EXPECT_EQ(result.err, "weft: ConfigError: " + text + "\n");
}

TEST(TrainVerb, RefusesWhatCannotBeBeforeAnythingStarts) {
  const TempDir dir;
  const std::string config = write_config(dir, "run");
  expect_refusal({config, "--resume=yesterday"},
                 "--resume: expected newest, auto or the step of a checkpoint, got 'yesterday'");
  expect_refusal(
      {config, "--resume"},
      "--resume: '" + dir.path() + "/run' has no complete checkpoint; leave --resume out to begin");
  const std::string unknown = write_config(dir, "unknown", "train.stepz = 3\n");
  const auto result = train({unknown});
  EXPECT_EQ(result.status, 2);
  EXPECT_NE(result.err.find("(did you mean 'steps'?)"), std::string::npos) << result.err;
  EXPECT_FALSE(std::filesystem::exists(dir.path() + "/unknown"));
  expect_refusal({config, "--pipe", "3"},
                 "--pipe: mesh.pipe: expected at most model.num_layers 2, got 3; a stage needs a "
                 "layer");
  const auto many = train({config, "--tp", "7"});
  EXPECT_EQ(many.status, 2) << many.err;
  EXPECT_FALSE(std::filesystem::exists(dir.path() + "/run"));
  const auto other = train({config, "--tp", "2", "--backend", "pigeon"});
  EXPECT_EQ(other.status, 2) << other.err;
  const std::string said = "this build has no pigeon backend; use one of: ";
  EXPECT_NE(other.err.find(said), std::string::npos) << other.err;
  EXPECT_NE(other.err.find("hierarchical", other.err.find(said)), std::string::npos) << other.err;
  const auto uneven = train({config, "--dp", "5"});
  EXPECT_EQ(uneven.status, 2) << uneven.err;
}

// From headers, so that no data are tokenized and no weights read first.
TEST(TrainVerb, RefusesWhatTheModelCannotBeTrainedFor) {
  const TempDir dir;
  const auto small = train({write_config(dir, "run", "model.vocab_size = 258\n")});
  EXPECT_NE(small.err.find("model.vocab_size: expected at least the tokenizer's 259 tokens"),
            std::string::npos)
      << small.err;
  const auto quantized = train({write_measure(dir, "run", kModel), "--tp", "2"});
  EXPECT_NE(quantized.err.find("model.embed_tokens.weight is quantized, expected plain numbers"),
            std::string::npos)
      << quantized.err;
  const auto unknown = weft(
      {"lora", write_measure(dir, "run", kModel, "train.steps = 1\nlora.targets = [\"query\"]\n")});
  EXPECT_NE(unknown.err.find("lora.targets: "), std::string::npos) << unknown.err;
  EXPECT_NE(unknown.err.find(" has no layer 'query'"), std::string::npos) << unknown.err;
  EXPECT_FALSE(std::filesystem::exists(dir.path() + "/run"));
}

}  // namespace
}  // namespace weft::cli
