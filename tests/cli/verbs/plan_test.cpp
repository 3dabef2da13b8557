// `weft plan` and `weft plot`, as users run them.
#include <gtest/gtest.h>

#include "tests/cli/weft_command.h"
#include "tests/core/error_text.h"
#include "tests/core/temp_dir.h"
#include "tests/models/model_files.h"
#include "weft/train/metrics/metrics_file.h"

namespace weft::cli {
namespace {

using nlohmann::json;
using test::CommandResult;
using testing::TempDir;

constexpr char kNewModel[] = R"([model]
vocab_size = 32000
hidden_size = 4096
num_layers = 32
num_heads = 32
num_kv_heads = 8
intermediate_size = 14336
tied = false
[batch]
sequences = 1024
sequence_length = 4096
[train]
steps = 10
dtype = "bfloat16"
)";

// Elements that rank 0 of `inspect --tp` holds.
int64_t inspected_elements(int tp) {
  int64_t elements = 0;
  const json report = weft_json({"inspect", "--json", kModel, "--tp", std::to_string(tp)});
  for (const json& tensor : report["tensors"]) {
    int64_t numel = 1;
    for (const json& size : tensor["shape"]) numel *= size.get<int64_t>();
    const json& rank = tensor["ranks"][0];
    const int64_t held = rank["end"].get<int64_t>() - rank["start"].get<int64_t>();
    if (!tensor["split"].is_null()) {
      const bool is_rows = tensor["cut"] == "rows" || tensor["shape"].size() == 1;
      numel = numel / tensor["shape"][is_rows ? 0 : 1].get<int64_t>() * held;
    }
    elements += numel;
  }
  return elements;
}

TEST(Plan, CountsTheParametersOfARealModelOnEveryRank) {
  const TempDir dir;
  const std::string config =
      dir.write("run.toml", std::string("[model]\nfrom = \"") + kModel +
                                "\"\n[batch]\nsequences = 2\n"
                                "sequence_length = 64\n[train]\nsteps = 1\n");
  for (const int tp : {1, 2, 3}) {
    const json plan = weft_json({"plan", config, "--json", "--tp", std::to_string(tp)});
    const int64_t elements = plan["memory"]["parameters"].get<int64_t>() / 4;
    // Each of 31 units is padded to 16 elements.
    EXPECT_NEAR(static_cast<double>(elements), static_cast<double>(inspected_elements(tp)), 31 * 16)
        << tp;
  }
  EXPECT_EQ(inspected_elements(1), 134'515'008);
}

TEST(Plan, FindsMeshesForManyRanks) {
  const TempDir dir;
  const std::string config = dir.write("run.toml", kNewModel);
  const json found =
      weft_json({"plan", config, "--ranks", "1024", "--hardware", "h100", "--json", "--top", "3"});
  EXPECT_EQ(found["num_parameters"], 7'241'732'096);
  ASSERT_EQ(found["meshes"].size(), 3U);
  const json& best = found["meshes"][0];
  EXPECT_EQ(best["replicas"].get<int>() * best["dp"].get<int>() * best["tp"].get<int>(), 1024);
  const CommandResult table = weft({"plan", config, "--ranks", "1024", "--hardware", "h100"});
  EXPECT_EQ(table.status, 0) << table.err;
  EXPECT_EQ(table.out.rfind("model   7.24 G parameters, bfloat16\n", 0), 0U) << table.out;
  EXPECT_NE(table.out.find("\nnot possible\n"), std::string::npos) << table.out;
}

TEST(Plan, ShowsTheMeshOfTheFile) {
  const TempDir dir;
  const std::string config = dir.write("run.toml", kNewModel);
  const CommandResult result = weft({"plan", config, "--dp", "4", "--replicas", "2"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.out.find("mesh    replica 2 x data 4 x pipe 1 x model 1 = 8 ranks\n"),
            std::string::npos)
      << result.out;
  EXPECT_NE(result.out.find("replica, reduce_scatter\n"), std::string::npos) << result.out;
}

TEST(Plan, CountsTheMemoryOfAnExactRunAndSaysWhatItDoesNotCount) {
  const TempDir dir;
  const std::string rest =
      "\n[batch]\nsequences = 8\nmicrobatch = 2\nsequence_length = 64\n[train]\nsteps = 1\n";
  const std::string model = std::string("[model]\nfrom = \"") + kModel + "\"";
  const CommandResult exact =
      weft({"plan", dir.write("exact.toml", model + rest + "exact = true\n"), "--json"});
  ASSERT_EQ(exact.status, 0) << exact.err;
  EXPECT_EQ(exact.err,
            "weft: warn: plan: train.exact: memory is that of an exact run; collectives and time "
            "are those "
            "of a usual one, which is faster\n");
  const json memory = json::parse(exact.out)["memory"];
  const json usual = weft_json({"plan", dir.write("usual.toml", model + rest), "--json"})["memory"];
  // Of four pairs of sequences three gradients wait at a time.
  EXPECT_EQ(memory["gradient_work"].get<int64_t>(), 3 * 4 * int64_t{134'515'008});
  EXPECT_EQ(memory["parameters"], usual["parameters"]);
  EXPECT_GT(memory["activations"], usual["activations"]);
}

TEST(Plan, RefusesConfigurationsInOneLine) {
  const TempDir dir;
  const std::string config = dir.write("run.toml", kNewModel);
  const std::string typing = dir.write("typing.toml", "[trian]\nsteps = 1\n");
  const std::string exact = dir.write("exact.toml", std::string(kNewModel) + "exact = true\n");
  const std::string gemma = dir.write(
      "gemma.toml", "[model]\nfrom = \"" + test::model_data("families/gemma3") +
                        "\"\n[batch]\nsequences = 2\nsequence_length = 16\n[train]\nsteps = 1\n"
                        "exact = true\n");
  const std::string olmo =
      dir.write("olmo.toml", "[model]\nfamily = \"olmo2\"\n" +
                                 std::string(kNewModel).substr(std::string("[model]\n").size()) +
                                 "exact = true\n");
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"plan"}, "weft: ConfigError: CONFIG: none given; name a TOML file\n"},
      {{"plan", typing},
       "weft: ConfigError: FILE:1:2: 'trian': unknown section (did you mean 'train'?); the "
       "sections "
       "are model, mesh, batch, train, optimizer, schedule, data, eval, checkpoint, log, lora\n"},
      {{"plan", exact},
       "weft: ConfigError: FILE:14:9: train.dtype: expected float32 with train.exact, got "
       "bfloat16; change it or leave train.exact out\n"},
      {{"plan", gemma},
       "weft: ConfigError: models: training with the same bits on any number of ranks: "
       "gemma3_text with norms before and after layers, gelu in feed-forward layers, expected a "
       "model without; leave train.exact out\n"},
      {{"plan", olmo},
       "weft: ConfigError: models: training with the same bits on any number of ranks: olmo2 with "
       "norms over all heads, norms after layers, expected a model without; leave train.exact "
       "out\n"},
      {{"plan", config, "--dp", "3"},
       "weft: ConfigError: FILE:10:13: batch.sequences: expected a multiple of 3 (mesh.replicas 1 "
       "x "
       "mesh.dp 3), got 1024; 1023 and 1026 would work\n"},
      {{"plan", config, "--tp", "64"},
       "weft: ConfigError: --tp: mesh.tp: expected at most model.num_heads 32, got 64; use fewer "
       "model ranks and more data ranks (mesh.dp)\n"},
      {{"plan", config, "--hardware", "h10"},
       "weft: ConfigError: hardware: expected one of a100, h100, h200, b200, cpu, got 'h10' (did "
       "you mean 'h100'?)\n"},
  };
  for (const auto& [args, message] : cases) {
    const CommandResult result = weft(args);
    EXPECT_EQ(result.status, 2);
    EXPECT_EQ(result.out, "");
    std::string err = testing::replaced(result.err, config, "FILE");
    err = testing::replaced(err, exact, "FILE");
    EXPECT_EQ(testing::replaced(err, typing, "FILE"), message);
  }
}

TEST(Plan, NamesTheVariableThatIsWrong) {
  const TempDir dir;
  const std::string config = dir.write("run.toml", kNewModel);
  const CommandResult result = weft({"plan", config}, {.variables = {{"WEFT_TP", "64"}}});
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.err.rfind("weft: ConfigError: WEFT_TP: mesh.tp: expected at most ", 0), 0U)
      << result.err;
}

void write_run(const std::string& path) {
  train::MetricsFile file(path, 0);
  for (int64_t step = 1; step <= 20; ++step) {
    train::StepMetrics metrics;
    metrics.step = step;
    metrics.loss = 4.0 / static_cast<double>(step);
    if (step % 10 == 0) metrics.eval_loss = metrics.loss + 0.5;
    file.append(metrics);
  }
}

TEST(Plot, DrawsRuns) {
  const TempDir first, second;
  write_run(first.at("metrics.jsonl"));
  write_run(second.at("metrics.jsonl"));
  const CommandResult result =
      weft({"plot", first.path(), second.at("metrics.jsonl"), "-o", first.at("loss.svg"),
            "--smooth", "0.5", "--title", "two runs"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "");
  const std::string svg = first.read("loss.svg");
  EXPECT_EQ(svg.rfind("<svg ", 0), 0U);
  EXPECT_NE(svg.find(">two runs</text>"), std::string::npos);
  EXPECT_NE(svg.find(" eval: 0.700</text>"), std::string::npos);
}

TEST(Plot, RefusesWhatIsNoRun) {
  const TempDir dir;
  const std::string out = dir.at("loss.svg");
  const std::pair<std::vector<std::string>, int> cases[] = {
      {{"plot", "-o", out}, 2},
      {{"plot", dir.path()}, 2},
      {{"plot", dir.path(), "-o", out}, 3},
      {{"plot", dir.write("m.jsonl", "{}\n"), "-o", out}, 3},
      {{"plot", dir.write("empty.jsonl", ""), "-o", out}, 2},
      {{"plot", dir.path(), "-o", out, "--from", "0"}, 2},
  };
  for (const auto& [args, status] : cases) {
    const CommandResult result = weft(args);
    EXPECT_EQ(result.status, status) << result.err;
    EXPECT_EQ(num_lines(result.err), 1) << result.err;
  }
  EXPECT_EQ(dir.num_files(), 2U);
}

}  // namespace
}  // namespace weft::cli
