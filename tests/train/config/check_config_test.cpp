#include "weft/train/config/check_config.h"

#include <gtest/gtest.h>

#include "tests/train/config/config_files.h"
#include "weft/core/error.h"

namespace weft::train {
namespace {

using weft::testing::error_text;
using weft::testing::replaced;
using weft::testing::TempDir;

// kGoodConfig with some values changed as flags do.
TrainConfig good(const std::vector<GivenValue>& changes = {}) {
  return config_of(kGoodConfig, changes);
}

// What check_config says of it.
std::string complaint(const std::vector<GivenValue>& changes) {
  return error_text([&] { check_config(good(changes)); });
}

TEST(CheckConfig, PassesWhatFits) {
  EXPECT_EQ(complaint({}), "no error");
  EXPECT_EQ(complaint({{"mesh.dp", "2", "--dp"},
                       {"mesh.replicas", "2", "--replicas"},
                       {"mesh.tp", "2", "--tp"},
                       {"batch.microbatch", "1", "--microbatch"}}),
            "no error");
}

TEST(CheckConfig, SaysWhichBatchSizesWork) {
  EXPECT_EQ(complaint({{"mesh.dp", "3", "--dp"}, {"batch.sequences", "8", "F"}}),
            "ConfigError: F: batch.sequences: expected a multiple of 3 (mesh.replicas 1 x mesh.dp "
            "3), got 8; 6 and 9 would work");
  EXPECT_EQ(complaint({{"mesh.dp", "16", "--dp"}, {"batch.sequences", "8", "F"}}),
            "ConfigError: F: batch.sequences: expected a multiple of 16 (mesh.replicas 1 x mesh.dp "
            "16), got 8; 16 would work");
  EXPECT_EQ(complaint({{"mesh.dp", "2", "--dp"}, {"batch.microbatch", "3", "F"}}),
            "ConfigError: F: batch.microbatch: expected a divisor of 4 (batch.sequences 8 over 2 "
            "data ranks), got 3; 1, 2 and 4 would work");
}

TEST(CheckConfig, NamesThePlaceInTheFile) {
  const TempDir dir;
  const std::string path = dir.write("run.toml", std::string(kGoodConfig) + "[mesh]\ndp = 3\n");
  const std::string error = error_text([&] { check_config(read_train_config(path)); });
  EXPECT_EQ(
      replaced(error, path, "run.toml"),
      "ConfigError: run.toml:8:13: batch.sequences: expected a multiple of 3 (mesh.replicas 1 "
      "x mesh.dp 3), got 8; 6 and 9 would work");
}

TEST(CheckConfig, RefusesWhatIsMissing) {
  EXPECT_EQ(error_text([] { check_config(TrainConfig()); }),
            "ConfigError: batch.sequences: is required; write it in the file");
  TrainConfig config = good();
  config.train.steps = 0;
  EXPECT_EQ(error_text([&] { check_config(config); }).substr(0, 12), "ConfigError:");
  config = good();
  config.model.num_layers = 0;
  const std::string error = error_text([&] { check_config(config); });
  EXPECT_NE(error.find("model.num_layers: is required"), std::string::npos) << error;
}

TEST(CheckConfig, RefusesAMeshThatTheModelDoesNotFit) {
  EXPECT_EQ(complaint({{"mesh.tp", "8", "--tp"}}),
            "ConfigError: --tp: mesh.tp: expected at most model.num_heads 4, got 8; use fewer "
            "model ranks and more data ranks (mesh.dp)");
  EXPECT_EQ(complaint({{"mesh.pipe", "5", "--pipe"}}),
            "ConfigError: --pipe: mesh.pipe: expected at most model.num_layers 4, got 5; a stage "
            "needs a layer");
  const GivenValue pipe = {"mesh.pipe", "2", "--pipe"};
  EXPECT_EQ(complaint({pipe, {"mesh.pipe_layers", "1,3", "F"}}), "no error");
  EXPECT_EQ(complaint({pipe, {"mesh.pipe_layers", "2,3", "F"}}),
            "ConfigError: F: mesh.pipe_layers: expected numbers from 1 that add up to 4, the "
            "model's layers, got [2, 3] (5); leave it out to balance the stages");
}

TEST(CheckConfig, RefusesSizesThatDontFitEachOther) {
  EXPECT_EQ(complaint({{"model.num_heads", "3", "F"}, {"model.num_kv_heads", "3", "F"}}),
            "ConfigError: F: model.num_heads: expected a divisor of model.hidden_size 64, got 3; "
            "change one of them or give model.head_dim");
  EXPECT_EQ(complaint({{"model.num_kv_heads", "3", "F"}}),
            "ConfigError: F: model.num_kv_heads: expected a divisor of model.num_heads 4, got 3; "
            "1, 2 and 4 would work");
  EXPECT_EQ(complaint({{"model.head_dim", "15", "F"}}),
            "ConfigError: F: model.head_dim: expected an even number, since rope turns pairs, got "
            "15; change model.head_dim or model.num_heads");
  EXPECT_EQ(complaint({{"model.max_positions", "64", "F"}, {"batch.sequence_length", "128", "F"}}),
            "ConfigError: F: batch.sequence_length: expected at most model.max_positions 64, got "
            "128; raise model.max_positions");
}

TEST(CheckConfig, RefusesSizesBesideWeights) {
  EXPECT_EQ(error_text([] {
              check_config(config_of(kGoodConfig, {{"model.from", "some/folder", "F"},
                                                   {"model.hidden_size", "64", "G"}}));
            }),
            "ConfigError: G: model.hidden_size: expected none beside model.from 'some/folder', "
            "which has sizes of its own; give one of the two");
}

// They would be read and change nothing.
TEST(CheckConfig, RefusesAllElseOfANewModelBesideWeights) {
  const std::pair<const char*, const char*> keys[] = {{"family = \"qwen3\"", "a family"},
                                                      {"rope_base = 5000", "a base"},
                                                      {"norm_eps = 1e-6", "a number"},
                                                      {"tied = false", "a head"},
                                                      {"init_std = 0.1", "weights"}};
  for (const auto& [key, what] : keys) {
    TrainConfig config = config_of(core::join("[model]\nfrom = \"some/folder\"\n", key));
    const std::string error = error_text([&] { complete_model(config); });
    const std::string name = std::string("model.") + key;
    EXPECT_NE(error.find(name.substr(0, name.find(' ')) +
                         ": expected none beside model.from "
                         "'some/folder', which has " +
                         what + " of its own; give one of the two"),
              std::string::npos)
        << error;
  }
}

TEST(CheckConfig, RefusesSchedulesLongerThanTheRun) {
  const GivenValue wsd = {"schedule.name", "wsd", "F"};
  EXPECT_EQ(complaint({{"schedule.warmup_steps", "101", "F"}}),
            "ConfigError: F: schedule.warmup_steps: expected at most train.steps 100, got 101; "
            "warm up for fewer steps");
  EXPECT_EQ(
      complaint({wsd, {"schedule.warmup_steps", "10", "F"}, {"schedule.decay_steps", "91", "F"}}),
      "ConfigError: F: schedule.decay_steps: expected at most 90 (train.steps 100 less "
      "schedule.warmup_steps 10), got 91; decay for fewer steps");
  EXPECT_EQ(complaint({{"schedule.decay_steps", "9", "F"}}),
            "ConfigError: F: schedule.decay_steps: expected none for cosine, which falls to the "
            "last step, got 9; leave it out or choose wsd");
}

TEST(CheckConfig, RefusesBetasThatAreNoPairBelowOne) {
  for (const char* betas : {"0.9", "0.9,1", "0.9,0.9,0.9"}) {
    const std::string error = complaint({{"optimizer.betas", betas, "F"}});
    EXPECT_EQ(error.rfind("ConfigError: F: optimizer.betas: expected two numbers", 0), 0U) << error;
  }
}

TEST(CheckConfig, RefusesMomentumThatForgetsNothing) {
  for (const std::string name : {"sgd", "muon"}) {
    EXPECT_EQ(complaint({{"optimizer.name", name, "F"}, {"optimizer.momentum", "1", "F"}}),
              "ConfigError: F: optimizer.momentum: expected 0 to below 1 for " + name +
                  ", got 1; e.g. 0.9");
  }
  EXPECT_EQ(complaint({{"optimizer.name", "adamw", "F"}, {"optimizer.momentum", "1", "F"}}),
            "no error");
}

TEST(CheckConfig, RefusesToDropEverything) {
  for (const char* name : {"train.dropout", "lora.dropout"}) {
    EXPECT_EQ(complaint({{name, "1", "F"}}),
              core::join("ConfigError: F: ", name,
                         ": expected less than 1, got 1; something must be left"));
  }
}

TEST(CheckConfig, RefusesEvaluationWithoutData) {
  EXPECT_EQ(complaint({{"eval.every", "10", "F"}}),
            "ConfigError: F: eval.every: evaluation every 10 steps, but no data for it; give "
            "data.eval or data.eval_fraction");
  EXPECT_EQ(complaint({{"data.eval", "a.txt", "F"}, {"data.eval_fraction", "0.1", "F"}}),
            "ConfigError: F: data.eval_fraction: expected 0 beside data.eval, got 0.1; give one of "
            "the two");
}

TEST(CheckConfig, CompletesANewModel) {
  TrainConfig config = config_of(
      "[model]\nhidden_size = 64\nnum_layers = 1\nnum_heads = 4\n"
      "[batch]\nsequences = 1\nsequence_length = 32\n[train]\nsteps = 1\n");
  complete_model(config);
  EXPECT_EQ(config.model.num_kv_heads, 4);
  EXPECT_EQ(config.model.head_dim, 16);
  EXPECT_EQ(config.model.intermediate_size, 192);
  EXPECT_EQ(config.model.max_positions, 32);
}

TEST(CheckInputs, RefusesARunWithoutFolderOrData) {
  const TempDir dir;
  TrainConfig config = good();
  EXPECT_EQ(error_text([&] { check_inputs(config); }),
            "ConfigError: checkpoint.folder: is required: the folder that the run is kept in; "
            "write it in the file");
  config.checkpoint.folder = dir.at("run");
  EXPECT_EQ(error_text([&] { check_inputs(config); }),
            "ConfigError: data.train: is required: text or JSONL files to train on; write it in "
            "the file");
  config.data.train = {"/nowhere/a.txt"};
  EXPECT_EQ(error_text([&] { check_inputs(config); }),
            "ConfigError: data.train: no such file or folder: '/nowhere/a.txt'; correct the path");
  config.data.train = {dir.write("a.txt", "text")};
  EXPECT_EQ(error_text([&] { check_inputs(config); }), "no error");
  const std::string table = dir.write("a.csv", "a,b");
  for (const bool is_eval : {true, false}) {
    TrainConfig other = config;
    (is_eval ? other.data.eval : other.data.train).assign({table});
    EXPECT_EQ(replaced(error_text([&] { check_inputs(other); }), dir.path(), "DIR"),
              core::join("ConfigError: data.", is_eval ? "eval" : "train",
                         ": 'DIR/a.csv': expected a name that ends in .txt, .text, .md, .jsonl or "
                         ".ndjson; convert the file or rename it"));
  }
}

TEST(CheckConfig, RefusesWhatHasNoOneOrderOfSums) {
  const auto exact = [](const GivenValue& other) {
    return complaint({{"train.exact", "true", "--exact"}, other});
  };
  EXPECT_EQ(exact({"mesh.dp", "2", "--dp"}), "no error");
  EXPECT_EQ(
      exact({"mesh.pipe", "2", "--pipe"}),
      "ConfigError: --pipe: mesh.pipe: expected 1 with train.exact, got 2; change it or leave "
      "train.exact out");
  EXPECT_EQ(exact({"mesh.tp", "9", "--tp"}),
            "ConfigError: --tp: mesh.tp: expected at most 8 with train.exact, got 9; change it or "
            "leave train.exact out");
  EXPECT_EQ(exact({"train.dtype", "bfloat16", "F"}),
            "ConfigError: F: train.dtype: expected float32 with train.exact, got bfloat16; change "
            "it or leave train.exact out");
  EXPECT_EQ(exact({"train.dropout", "0.1", "F"}),
            "ConfigError: F: train.dropout: expected 0 with train.exact, got 0.1; change it or "
            "leave train.exact out");
  EXPECT_EQ(exact({"train.sequence_parallel", "true", "F"}),
            "ConfigError: F: train.sequence_parallel: expected false with train.exact, got true; "
            "change it or leave train.exact out");
  EXPECT_EQ(exact({"optimizer.name", "muon", "F"}),
            "ConfigError: F: optimizer.name: expected adamw, sgd or lion with train.exact, got "
            "muon; change it or leave train.exact out");
}

TEST(CheckWorld, SaysWhichMeshesWork) {
  const TrainConfig config = good({{"mesh.replicas", "2", "F"}, {"mesh.dp", "2", "F"}});
  EXPECT_EQ(error_text([&] { check_world(config, 4); }), "no error");
  EXPECT_EQ(error_text([&] { check_world(config, 6); }),
            "ConfigError: mesh: replicas 2 x dp 2 x pipe 1 x tp 1 are 4 ranks, expected the 6 that "
            "were started; mesh.dp = 3 or mesh.replicas = 3 would work");
  EXPECT_EQ(error_text([&] { check_world(config, 7); }),
            "ConfigError: mesh: replicas 2 x dp 2 x pipe 1 x tp 1 are 4 ranks, expected the 7 that "
            "were started; sizes whose product is 7 would work");
}

TEST(PlanBatch, DealsSequencesOut) {
  const BatchPlan all = plan_batch(good({{"mesh.dp", "2", "F"}}));
  EXPECT_EQ(all.sequences_per_rank, 4);
  EXPECT_EQ(all.microbatch, 4);
  EXPECT_EQ(all.num_microbatches, 1);
  const BatchPlan cut = plan_batch(good({{"mesh.dp", "2", "F"}, {"batch.microbatch", "1", "F"}}));
  EXPECT_EQ(cut.microbatch, 1);
  EXPECT_EQ(cut.num_microbatches, 4);
}

}  // namespace
}  // namespace weft::train
