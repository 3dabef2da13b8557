// --exact: the same bits however a model is cut.
#include <gtest/gtest.h>

#include "tests/cli/weft_command.h"
#include "tests/core/temp_dir.h"
#include "tests/io/open_error.h"
#include "weft/dist/backends/names.h"

namespace weft::cli {
namespace {

using test::CommandResult;
using testing::TempDir;
using Strings = std::vector<std::string>;

// "Once upon a time, there was a" and further words for the model of set-up: more tokens than are
// ever multiplied as one tile.
constexpr char kText[] =
    "6403,1980,253,655,28,665,436,253,1165,3404,5113,28,284,665,436,253,655,28";
constexpr char kBeginning[] = "6403,1980,253,655,28";
constexpr size_t kBeginningTokens = 5;

std::string logits_of(const std::string& model, const std::string& tokens, const Strings& flags) {
  const TempDir dir;
  const CommandResult result =
      weft(joined({"logits", model, "--tokens", tokens, "--out", dir.at("logits")}, flags));
  EXPECT_EQ(result.status, 0) << result.err;
  if (result.status != 0) return "";
  return testing::tensor_text(*io::TensorFile::open(dir.at("logits")), "logits");
}

Strings exact(const Strings& flags, const std::string& activations = "int16") {
  return joined({"--exact", "--activations", activations}, flags);
}

TEST(Exact, LogitsHaveTheSameBitsOnAnyRanksBackendsAndThreads) {
  const std::string expected = logits_of(kModel, kText, exact({}));
  ASSERT_FALSE(expected.empty());
  std::vector<Strings> ways = {{"--tp", "2"},
                               {"--tp", "3"},
                               {"--tp", "4"},
                               {"--tp", "5"},
                               {"--tp", "6"},
                               {"--threads", "1"},
                               {"--tp", "2", "--threads", "2"},
                               {"--tp", "2", "--head-split", "kv"}};
  for (const std::string backend : {"gloo", "mpi", "hierarchical"}) {
    for (const auto& known : dist::known_backends()) {
      if (known.name == backend && known.is_built)
        ways.push_back({"--tp", "3", "--backend", backend});
    }
  }
  for (const Strings& way : ways) {
    EXPECT_TRUE(logits_of(kModel, kText, exact(way)) == expected) << way.back();
  }
  // Where the test could fail.
  const Strings usual = {"--activations", "int16", "--tp"};
  EXPECT_FALSE(logits_of(kModel, kText, joined(usual, {"1"})) ==
               logits_of(kModel, kText, joined(usual, {"3"})));
}

// Plain numbers could be cut anywhere: 1,536 features of a layer by five at 307.
TEST(Exact, PlainNumbersAreCutBetweenBlocks) {
  const TempDir dir;
  const CommandResult converted = weft({"convert", kModel, dir.at("plain"), "--dtype", "bf16"});
  ASSERT_EQ(converted.status, 0) << converted.err;
  const std::string expected = logits_of(dir.at("plain"), kBeginning, exact({}));
  ASSERT_FALSE(expected.empty());
  for (const char* const ranks : {"5", "7"}) {
    EXPECT_TRUE(logits_of(dir.at("plain"), kBeginning, exact({"--tp", ranks})) == expected)
        << ranks;
  }
}

TEST(Exact, LogitsDoNotDependOnWhatFollows) {
  const std::string whole = logits_of(kModel, kText, exact({"--tp", "2"}, "int8"));
  const std::string beginning = logits_of(kModel, kBeginning, exact({"--tp", "3"}, "int8"));
  ASSERT_FALSE(beginning.empty());
  EXPECT_TRUE(whole.substr(0, beginning.size()) == beginning);
  EXPECT_EQ(whole.size() % 18, 0U);
  EXPECT_EQ(beginning.size() / kBeginningTokens, whole.size() / 18);
}

TEST(Exact, TokensAreTheSameWithGuesses) {
  const Strings args = joined({"generate", "-p", "red green blue red green blue red green", "-n",
                               "24", "--ignore-eos", "--json"},
                              exact({}));
  const nlohmann::json plain = weft_json(joined(args, {"--tp", "2"}));
  const nlohmann::json guessed = weft_json(joined(args, {"--tp", "3", "--speculate", "8"}));
  EXPECT_EQ(guessed.at("tokens"), plain.at("tokens"));
  EXPECT_GT(guessed.at("speculation").at("right").get<int>(), 8);
}

TEST(Exact, PerplexityHasTheSameBits) {
  const TempDir dir;
  std::string words;
  for (int i = 0; i < 60; ++i) words += "Once upon a time, there was number " + std::to_string(i);
  const std::string text = dir.write("text", words);
  const auto loss = [&](const Strings& flags) {
    const nlohmann::json got =
        weft_json(joined({"perplexity", "--file", text, "--json", "--ctx-size", "64"}, flags));
    EXPECT_GT(got.at("windows"), 8);
    return got.at("mean_loss").get<double>();
  };
  const double expected = loss(exact({}));
  EXPECT_EQ(loss(exact({"--tp", "2"})), expected);
  EXPECT_EQ(loss(exact({"--tp", "3"})), expected);
  EXPECT_NE(loss({"--activations", "int16", "--tp", "3"}), expected);
}

TEST(Exact, RefusesWhatIsNotComputedSo) {
  const TempDir dir;
  const auto refusal = [&](const std::string& model, const Strings& flags) {
    const CommandResult result =
        weft(joined({"logits", model, "--tokens", "1,2", "--out", dir.at("logits")}, flags));
    EXPECT_EQ(result.status, 2);
    EXPECT_EQ(result.out, "");
    return result.err;
  };
  EXPECT_EQ(refusal(kModel, {"--exact"}),
            "weft: ConfigError: --exact: with --activations float, expected int16 or int8; add one "
            "of them\n");
  EXPECT_EQ(refusal(kModel, exact({"--adapter", std::string(WEFT_SOURCE_DIR) +
                                                    "/tests/models/data/peft/plain"})),
            "weft: ConfigError: --exact: with --adapter, expected a model without, whose products "
            "have one order; make one of both with weft fuse, or leave one of them out\n");
  const CommandResult compared = weft(joined(
      {"perplexity", kModel, "--file", dir.write("text", "a"), "--against", "float"}, exact({})));
  EXPECT_EQ(compared.err,
            "weft: ConfigError: --exact: with --against, expected one model, as predictions in "
            "float32 have no fixed order; leave one of them out\n");
  EXPECT_EQ(refusal(std::string(WEFT_SOURCE_DIR) + "/tests/models/data/families/llama",
                    exact({"--tp", "2"})),
            "weft: ConfigError: models: the same bits on any number of ranks: heads cut at "
            "multiples of 24 features, expected multiples of 32; ask for the usual sums or for "
            "another number of ranks\n");
}

}  // namespace
}  // namespace weft::cli
