#include "weft/train/config/read_config.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/train/config/config_files.h"
#include "weft/train/config/config_fields.h"

namespace weft::train {
namespace {

// Sets a variable of the environment for the length of a test.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() { unsetenv(name_); }

 private:
  const char* name_;
};

TEST(ReadConfig, TakesValuesOfAllTypes) {
  const TrainConfig config = config_of(R"(
[model]
from = "some/folder"
tied = false
rope_base = 500000
[mesh]
tp = 2
[optimizer]
lr = 1e-3
betas = [0.9, 0.99]
no_decay = ["*.bias", "head.*"]
[data]
train = ["a.txt", "b.jsonl"]
[checkpoint]
async = true
)");
  EXPECT_EQ(config.model.from, "some/folder");
  EXPECT_FALSE(config.model.tied);
  EXPECT_EQ(config.model.rope_base, 500000.0);
  EXPECT_EQ(config.mesh.tp, 2);
  EXPECT_EQ(config.optimizer.lr, 1e-3);
  EXPECT_EQ(config.optimizer.betas, (std::vector<double>{0.9, 0.99}));
  EXPECT_EQ(config.optimizer.no_decay, (std::vector<std::string>{"*.bias", "head.*"}));
  EXPECT_EQ(config.data.train, (std::vector<std::string>{"a.txt", "b.jsonl"}));
  EXPECT_TRUE(config.checkpoint.is_async);
}

TEST(ReadConfig, KeepsDefaultsOfWhatIsNotGiven) {
  const TrainConfig config = config_of("");
  EXPECT_EQ(config.mesh.num_ranks(), 1);
  EXPECT_EQ(config.train.dtype, "float32");
  EXPECT_EQ(config.train.clip_norm, 1.0);
  EXPECT_EQ(config.optimizer.name, "adamw");
  EXPECT_TRUE(config.sources.empty());
  EXPECT_EQ(config.where("mesh.tp"), "mesh.tp");
}

TEST(ReadConfig, PrefersFlagThenEnvironmentThenFile) {
  const std::string toml = "[mesh]\ntp = 2\ndp = 3\nreplicas = 4\n[optimizer]\nlr = 0.5\n";
  const Variable tp("WEFT_TP", "5");
  const Variable dp("WEFT_DP", "6");
  const Variable lr("WEFT_OPTIMIZER_LR", "0.25");
  const TrainConfig config = config_of(toml, {{"mesh.tp", "7", "--tp"}});
  EXPECT_EQ(config.mesh.tp, 7);
  EXPECT_EQ(config.mesh.dp, 6);
  EXPECT_EQ(config.mesh.replicas, 4);
  EXPECT_EQ(config.optimizer.lr, 0.25);
  EXPECT_EQ(config.where("mesh.tp"), "--tp: mesh.tp");
  EXPECT_EQ(config.where("mesh.dp"), "WEFT_DP: mesh.dp");
  EXPECT_TRUE(config.where("mesh.replicas").ends_with("run.toml:4:12: mesh.replicas"));
}

TEST(ReadConfig, NamesTheVariableOfABadValue) {
  const Variable tp("WEFT_TP", "two");
  EXPECT_EQ(read_error(""),
            "ConfigError: WEFT_TP: mesh.tp: expected a whole number from 1 to 1000000, got 'two'");
}

TEST(ReadConfig, ReadsListsFromTheEnvironment) {
  const Variable train("WEFT_DATA_TRAIN", "a.txt,b.txt");
  const Variable betas("WEFT_OPTIMIZER_BETAS", "0.8,0.9");
  const TrainConfig config = config_of("");
  EXPECT_EQ(config.data.train, (std::vector<std::string>{"a.txt", "b.txt"}));
  EXPECT_EQ(config.optimizer.betas, (std::vector<double>{0.8, 0.9}));
}

TEST(ReadConfig, ReadsListsOfWholeNumbers) {
  EXPECT_EQ(config_of("[mesh]\npipe_layers = [10, 8]\n").mesh.pipe_layers,
            (std::vector<int64_t>{10, 8}));
  EXPECT_EQ(read_error("[mesh]\npipe_layers = [2.5, 1]\n"),
            "ConfigError: run.toml:2:15: mesh.pipe_layers: expected a list of whole numbers from 1 "
            "to 1000000000, got [2.5, 1]");
  EXPECT_EQ(read_error("[mesh]\npipe_layers = [0, 3]\n"),
            "ConfigError: run.toml:2:15: mesh.pipe_layers: expected a list of whole numbers from 1 "
            "to 1000000000, got [0, 3]");
  const Variable layers("WEFT_PIPE_LAYERS", "3,4");
  EXPECT_EQ(config_of("").mesh.pipe_layers, (std::vector<int64_t>{3, 4}));
}

TEST(ReadConfig, RefusesUnknownKeysWithTheNearestOne) {
  EXPECT_EQ(
      read_error("[optimizer]\nname = \"adamw\"\nlrr = 0.1\n"),
      "ConfigError: run.toml:3:1: optimizer.'lrr': unknown key (did you mean 'lr'?); the keys "
      "of [optimizer] are name, lr, betas, eps, momentum, weight_decay, no_decay");
  EXPECT_EQ(read_error("[mesh]\nsteps = 1\n"),
            "ConfigError: run.toml:2:1: mesh.'steps': unknown key (did you mean 'steps' of "
            "[train]?); the keys of [mesh] are replicas, dp, pipe, pipe_layers, tp, backend");
}

TEST(ReadConfig, RefusesUnknownSections) {
  const std::string all =
      "; the sections are model, mesh, batch, train, optimizer, schedule, data, eval, checkpoint, "
      "log, lora";
  EXPECT_EQ(
      read_error("[optimiser]\n"),
      "ConfigError: run.toml:1:2: 'optimiser': unknown section (did you mean 'optimizer'?)" + all);
  EXPECT_EQ(read_error("steps = 5\n"),
            "ConfigError: run.toml:1:1: 'steps': unknown section (did you mean 'steps' of "
            "[train]?)" +
                all);
  EXPECT_EQ(read_error("mesh = 5\n"),
            "ConfigError: run.toml:1:1: mesh: expected a section, got a number; write [mesh] above "
            "its keys");
}

TEST(ReadConfig, RefusesWrongTypesAndRanges) {
  const std::pair<const char*, const char*> cases[] = {
      {"[mesh]\ntp = \"2\"",
       "2:6: mesh.tp: expected a whole number from 1 to 1000000, got the "
       "text '2'"},
      {"[mesh]\ntp = 2.5", "2:6: mesh.tp: expected a whole number from 1 to 1000000, got 2.5"},
      {"[mesh]\ntp = 0", "2:6: mesh.tp: expected a whole number from 1 to 1000000, got 0"},
      {"[mesh]\ntp = true", "2:6: mesh.tp: expected a whole number from 1 to 1000000, got true"},
      {"[mesh]\ntp = 2024-01-01",
       "2:6: mesh.tp: expected a whole number from 1 to 1000000, got a date or time"},
      {"[mesh.tp]\nx = 1", "1:1: mesh.tp: expected a whole number from 1 to 1000000, got a table"},
      {"[optimizer]\nlr = inf", "2:6: optimizer.lr: expected a number above 0, got inf"},
      {"[optimizer]\nlr = nan", "2:6: optimizer.lr: expected a number above 0, got nan"},
      {"[optimizer]\nlr = 0", "2:6: optimizer.lr: expected a number above 0, got 0"},
      {"[optimizer]\nname = \"adam\"",
       "2:8: optimizer.name: expected adamw, sgd, adafactor, lion or muon, got 'adam' (did you "
       "mean "
       "'adamw'?)"},
      {"[optimizer]\nbetas = [0.9, \"x\"]",
       "2:9: optimizer.betas: expected a list of numbers from 0 to 1, got a text in the list"},
      {"[optimizer]\nbetas = [0.9, 2]",
       "2:9: optimizer.betas: expected a list of numbers from 0 to 1, got [0.9, 2]"},
      {"[data]\ntrain = \"a.txt\"",
       "2:9: data.train: expected a list of texts, e.g. [\"a\", \"b\"], got the text 'a.txt'"},
      {"[data]\ntrain = [1]",
       "2:9: data.train: expected a list of texts, e.g. [\"a\", \"b\"], got a number in the list"},
      {"[data]\npack = 1", "2:8: data.pack: expected true or false, got 1"},
      {"[lora]\nquantize_bits = 5", "2:17: lora.quantize_bits: expected 0, 2, 3, 4, 6 or 8, got 5"},
  };
  for (const auto& [toml, message] : cases) {
    EXPECT_EQ(read_error(toml), std::string("ConfigError: run.toml:") + message) << toml;
  }
}

TEST(ReadConfig, NamesThePlaceOfBadToml) {
  const std::string error = read_error("[train]\nsteps = = 5\n");
  EXPECT_EQ(error.rfind("ConfigError: run.toml:2:9: not valid TOML: ", 0), 0U) << error;
  const std::string twice = read_error("[train]\nsteps = 5\nsteps = 6\n");
  EXPECT_EQ(twice.rfind("ConfigError: run.toml:3:", 0), 0U) << twice;
  EXPECT_EQ(error.find('\n'), std::string::npos);
}

TEST(ReadConfig, RefusesAFileThatIsNotThere) {
  const std::string error =
      weft::testing::error_text([] { read_train_config("/nowhere/run.toml"); });
  EXPECT_EQ(error.rfind("FormatError: /nowhere/run.toml", 0), 0U) << error;
}

TEST(ReadConfig, TakesAVariableForEveryValue) {
  EXPECT_EQ(environment_name("mesh.tp"), "WEFT_TP");
  EXPECT_EQ(environment_name("mesh.replicas"), "WEFT_REPLICAS");
  EXPECT_EQ(environment_name("train.clip_norm"), "WEFT_TRAIN_CLIP_NORM");
}

}  // namespace
}  // namespace weft::train
