// The verbs that do not answer: what they report must be true of the model of set-up.
#include "weft/cli/verbs.h"

#include <gtest/gtest.h>

#include <cstring>
#include <regex>

#include "tests/cli/weft_command.h"
#include "tests/core/temp_dir.h"
#include "weft/core/error.h"
#include "weft/io/tensor_file.h"
#include "weft/version.h"

namespace weft::cli {
namespace {

using nlohmann::json;
using test::CommandResult;

std::string comma_list(const json& tokens) {
  std::string text = tokens.dump();
  return text.substr(1, text.size() - 2);
}

// Likeliest token after the last one, from a file that `weft logits` has written.
int64_t likeliest_next(const std::string& path, int64_t num_tokens) {
  const auto file = io::TensorFile::open(path);
  const io::TensorMeta& meta = file->require("logits");
  EXPECT_EQ(meta.shape, (std::vector<int64_t>{num_tokens, 49152}));
  EXPECT_EQ(meta.dtype, io::Dtype::kF32);
  std::vector<float> logits(meta.num_bytes / sizeof(float));
  file->read_at(meta.file, meta.offset, std::as_writable_bytes(std::span(logits)));
  const auto last = logits.end() - 49152;
  return std::max_element(last, logits.end()) - last;
}

TEST(Program, ListsEveryVerb) {
  for (const std::string flag : {"help", "--help", "-h"}) {
    const CommandResult result = weft({flag});
    EXPECT_EQ(result.status, 0);
    EXPECT_EQ(result.err, "");
    for (const Verb& verb : verbs()) {
      EXPECT_NE(result.out.find("  " + verb.name + " "), std::string::npos) << verb.name;
      EXPECT_NE(result.out.find(verb.summary), std::string::npos) << verb.name;
    }
  }
}

TEST(Program, ShowsEveryVerbsFlags) {
  for (const Verb& verb : verbs()) {
    const CommandResult result = weft({verb.name, "--help"});
    EXPECT_EQ(result.status, 0) << verb.name << result.err;
    EXPECT_NE(result.out.find("--config"), std::string::npos) << verb.name;
  }
}

TEST(Program, SaysItsVersion) {
  const CommandResult result = weft({"--version"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(num_lines(result.out), 1);
  const std::string version = core::join("weft ", WEFT_VERSION);
  EXPECT_TRUE(std::regex_match(
      result.out, std::regex(version + " \\((commit [0-9a-f]{12}, )?libtorch [0-9.]+, backends "
                                       "(nccl, )?shm, hierarchical, (mpi, )?gloo\\)\n")))
      << result.out;
}

TEST(Tokenize, FindsTheReferencesTokens) {
  for (const json& each : goldens()) {
    if (each.contains("messages")) continue;
    EXPECT_EQ(weft_json({"tokenize", "--json", "-p", each.at("prompt")}).at("tokens"),
              each.at("tokens"));
    EXPECT_EQ(weft_json({"tokenize", "--json", "-p", "-"}, {.input = each.at("prompt")}),
              json({{"tokens", each.at("tokens")}}));
  }
}

TEST(Tokenize, SpellsNoSpecialToken) {
  EXPECT_EQ(weft_json({"tokenize", "--json", "-p", "<|im_end|>"}).at("tokens"),
            json({44, 108, 306, 79, 486, 108, 46}));
  EXPECT_EQ(weft({"tokenize", "-p", "<|im_end|>"}).out,
            "44\t\"<\"\n108\t\"|\"\n306\t\"im\"\n79\t\"_\"\n486\t\"end\"\n108\t\"|\"\n46\t\">\"\n");
}

TEST(Tokenize, TakesTextThatIsEmptyOrNotUtf8) {
  EXPECT_EQ(weft_json({"tokenize", "--json", "-p", "-"}, {.input = ""}).at("tokens"),
            json::array());
  const CommandResult result = weft({"tokenize", "-p", "-"}, {.input = "a\xff\xfe"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_GE(num_lines(result.out), 3);
}

TEST(Logits, AreOfEveryTokenAndPointToTheNext) {
  const testing::TempDir dir;
  const json& wanted = golden("text_0");
  for (const std::string tp : {"1", "2", "3"}) {
    const std::string path = dir.at("logits" + tp + ".safetensors");
    const CommandResult result =
        weft({"logits", "--tokens", comma_list(wanted.at("tokens")), "--out", path, "--tp", tp});
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.out + result.err, "");
    EXPECT_EQ(likeliest_next(path, 6), wanted.at("greedy").at(0).get<int64_t>());
  }
}

TEST(Inspect, CutsTheModelIntoPartsThatSumToTheWhole) {
  const json report = weft_json({"inspect", "--tp", "2", "--json"});
  const auto whole = report.at("whole_bytes").get<double>();
  const auto replicated = report.at("replicated_bytes").get<double>();
  const auto ranks = report.at("rank_bytes").get<std::vector<double>>();
  ASSERT_EQ(ranks.size(), 2U);
  EXPECT_GE(ranks[0] + ranks[1], whole);
  EXPECT_LE(ranks[0] + ranks[1], 1.02 * whole + replicated);
  EXPECT_LT(replicated, 0.01 * whole);
  EXPECT_EQ(report.at("tp"), 2);
  EXPECT_EQ(report.at("family"), "llama");
}

TEST(Inspect, GivesNineHeadsAsSixAndThree) {
  const json report = weft_json({"inspect", "--tp", "2", "--json"});
  int num_layers = 0;
  for (const json& tensor : report.at("tensors")) {
    if (!tensor.at("name").get<std::string>().ends_with("q_proj.weight")) continue;
    ++num_layers;
    EXPECT_EQ(tensor.at("shape"), json({576, 576}));
    EXPECT_EQ(tensor.at("ranks").at(0).at("start"), 0);
    EXPECT_EQ(tensor.at("ranks").at(0).at("end"), 384);
    EXPECT_EQ(tensor.at("ranks").at(1).at("start"), 384);
    EXPECT_EQ(tensor.at("ranks").at(1).at("end"), 576);
  }
  EXPECT_EQ(num_layers, 30);
}

TEST(Inspect, ShowsATable) {
  const CommandResult result = weft({"inspect", "--tp", "2"});
  EXPECT_EQ(result.status, 0) << result.err;
  for (const char* part : {"llama, tp 2\n", "q_proj.weight", "rank 0: ", "rank 1: ", "whole: "}) {
    EXPECT_NE(result.out.find(part), std::string::npos) << part;
  }
}

TEST(Bench, ReportsSpeedsLoadAndMemory) {
  const json report = weft_json({"bench", "-p", "8", "-n", "4", "-r", "1", "--json", "--tp", "2"});
  for (const char* key : {"prefill_tokens_per_s", "decode_tokens_per_s"}) {
    const json& speed = report.at(key);
    EXPECT_GT(speed.at("min").get<double>(), 0) << key;
    EXPECT_GE(speed.at("median"), speed.at("min")) << key;
    EXPECT_GE(speed.at("max"), speed.at("median")) << key;
  }
  EXPECT_GT(report.at("load_s").get<double>(), 0);
  EXPECT_EQ(report.at("peak_rss_bytes").size(), 2U);
  EXPECT_EQ(report.at("tp"), 2);
  EXPECT_EQ(report.at("dtype"), "float32");
  EXPECT_EQ(report.at("activations"), "int16");
  EXPECT_EQ(report.at("cache_type"), "f16");
  EXPECT_EQ(report.at("prompt_tokens"), 8);
  EXPECT_EQ(report.at("new_tokens"), 4);
  EXPECT_EQ(report.at("depth"), 0);
  const json other =
      weft_json({"bench", "-p", "4", "-n", "2", "-r", "1", "--json", "--cache-type", "f32"});
  EXPECT_EQ(other.at("cache_type"), "f32");
}

TEST(Bench, MeasuresBehindOtherTokens) {
  const json report = weft_json(
      {"bench", "-d", "20", "-p", "8", "-n", "4", "-r", "1", "--json", "--tp", "2", "--profile"});
  EXPECT_EQ(report.at("depth"), 20);
  EXPECT_GT(report.at("decode_tokens_per_s").at("min").get<double>(), 0);
  const CommandResult refused = weft({"bench", "-d", "100000", "-p", "8", "-n", "4"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_EQ(
      refused.err,
      "weft: ConfigError: bench: 100008 positions, expected at most 8192 for this model; give a "
      "smaller -d, -p or -n\n");
}

TEST(Bench, MeasuresSequencesAtOnce) {
  const json report =
      weft_json({"bench", "-p", "4", "-n", "3", "-r", "1", "--json", "--tp", "2", "-b", "1,3"});
  const json& batches = report.at("batches");
  ASSERT_EQ(batches.size(), 2U);
  EXPECT_EQ(batches.at(1).at("sequences"), 3);
  const double all = batches.at(1).at("decode_tokens_per_s").at("median").get<double>();
  EXPECT_NEAR(batches.at(1).at("decode_tokens_per_s_of_each").get<double>(), all / 3, all * 1e-9);
  const CommandResult refused = weft({"bench", "-b", "1,0"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_EQ(refused.err, "weft: ConfigError: --batch: 0 sequences, expected 1 to 1024\n");
}

TEST(Doctor, FindsThisMachineWell) {
  const CommandResult result = weft({"doctor"});
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_NE(result.out.find("two ranks sum alike"), std::string::npos);
  EXPECT_NE(result.out.find("The capital of France is Paris."), std::string::npos);
}

TEST(Doctor, SaysWhatIsWrong) {
  const CommandResult result = weft({"doctor", "/nowhere.gguf"});
  // That of the first check that failed: a file that is missing.
  EXPECT_EQ(result.status, 3);
  EXPECT_NE(result.out.find("tokenizer  FAILED: /nowhere.gguf"), std::string::npos) << result.out;
}

}  // namespace
}  // namespace weft::cli
