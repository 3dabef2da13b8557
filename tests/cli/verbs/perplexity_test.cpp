#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>

#include "tests/cli/weft_command.h"
#include "tests/core/temp_dir.h"
#include "tests/text/byte_tokenizer.h"

namespace weft::cli {
namespace {

using testing::TempDir;
using Strings = std::vector<std::string>;

constexpr char kTextData[] = WEFT_SOURCE_DIR "/tests/generate/data/";

const nlohmann::json& reference() {
  static const nlohmann::json file = [] {
    std::ifstream in(std::string(kTextData) + "perplexity.json");
    return nlohmann::json::parse(in);
  }();
  return file;
}

// The begin of the text that the reference implementation has read.
std::string write_text(const TempDir& dir) {
  std::ifstream in(std::string(kTextData) + "us_constitution.txt", std::ios::binary);
  std::string text(reference().at("bytes").get<size_t>(), '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  return dir.write("text", text);
}

// A text takes minutes on a machine that builds at the same time.
test::CommandOptions patient() {
  test::CommandOptions options;
  options.timeout = std::chrono::minutes(10);
  return options;
}

nlohmann::json measure(const std::string& text, const nlohmann::json& expected,
                       const std::string& tp) {
  Strings args = {"perplexity", "--file", text,         "--json",
                  "--tp",       tp,       "--ctx-size", expected.at("ctx_size").dump()};
  if (expected.at("stride") != 0) args = joined(args, {"--stride", expected.at("stride").dump()});
  return weft_json(args, patient());
}

void expect_equal(const nlohmann::json& got, const nlohmann::json& expected) {
  for (const char* key : {"perplexity", "mean_loss", "standard_error"}) {
    const auto value = expected.at(key).get<double>();
    EXPECT_NEAR(got.at(key).get<double>(), value, 1e-4 * value) << key;
  }
  for (const char* key : {"windows", "scored_tokens", "ctx_size", "stride"}) {
    EXPECT_EQ(got.at(key), expected.at(key)) << key;
  }
  EXPECT_EQ(got.at("tokens"), reference().at("tokens"));
  EXPECT_GT(got.at("tokens_per_s").get<double>(), 0);
}

TEST(PerplexityVerb, EqualsTheReferenceForBothKindsOfWindow) {
  const TempDir dir;
  const std::string text = write_text(dir);
  // Side by side and overlapping; the tiny model below takes further ones.
  for (const size_t index : {0, 4}) {
    const nlohmann::json& expected = reference().at("cases")[index];
    SCOPED_TRACE(expected.dump());
    expect_equal(measure(text, expected, "1"), expected);
  }
}

TEST(PerplexityVerb, EqualsTheReferenceOnSeveralRanks) {
  const TempDir dir;
  const std::string text = write_text(dir);
  const nlohmann::json& expected = reference().at("cases")[0];
  for (const std::string tp : {"2", "3"}) expect_equal(measure(text, expected, tp), expected);
}

TEST(PerplexityVerb, ActivationsOfEightBitsCostAPercentOrTwo) {
  const TempDir dir;
  const nlohmann::json& exact = reference().at("cases")[0];
  const auto value = exact.at("perplexity").get<double>();
  double on_one_rank = 0;
  for (const std::string tp : {"1", "2"}) {
    const auto got = weft_json({"perplexity", "--file", write_text(dir), "--json", "--tp", tp,
                                "--ctx-size", exact.at("ctx_size").dump(), "--activations", "int8"},
                               patient());
    const auto perplexity = got.at("perplexity").get<double>();
    EXPECT_NEAR(perplexity, value, 1.5e-2 * value) << tp;
    EXPECT_NE(perplexity, value);
    if (tp == "1") on_one_rank = perplexity;
    EXPECT_NEAR(perplexity, on_one_rank, 1e-2 * value) << tp;
  }
}

TEST(PerplexityVerb, WhatGenerationTakesByDefaultCostsHalfAPercentAtMost) {
  const TempDir dir;
  const nlohmann::json& exact = reference().at("cases")[0];
  const auto value = exact.at("perplexity").get<double>();
  for (const std::string tp : {"1", "2"}) {
    const auto got =
        weft_json({"perplexity", "--file", write_text(dir), "--json", "--tp", tp, "--ctx-size",
                   exact.at("ctx_size").dump(), "--activations", "int16"},
                  patient());
    EXPECT_NEAR(got.at("perplexity").get<double>(), value, 5e-3 * value) << tp;
  }
}

TEST(PerplexityVerb, ACacheOfFloat16Or8BitsCostsLittle) {
  const TempDir dir;
  const nlohmann::json& exact = reference().at("cases")[0];
  const auto measured = [&](const std::string& cache_type) {
    return weft_json({"perplexity", "--file", write_text(dir), "--json", "--ctx-size",
                      exact.at("ctx_size").dump(), "--cache-type", cache_type},
                     patient())
        .at("perplexity")
        .get<double>();
  };
  const auto value = exact.at("perplexity").get<double>();
  EXPECT_NEAR(measured("f32"), value, 1e-4 * value);
  EXPECT_NEAR(measured("f16"), value, 1e-3 * value);
  EXPECT_NEAR(measured("q8_0"), value, 1e-2 * value);
}

TEST(PerplexityVerb, TellsWhatRoundingCostsAgainstTheSameModelInFloat32) {
  const TempDir dir;
  const std::string text = write_text(dir);
  const auto compared = [&](const std::string& activations) {
    return weft_json({"perplexity", "--file", text, "--json", "--ctx-size", "512", "--against",
                      "float", "--activations", activations, "--tp", "2"},
                     patient());
  };
  const auto by_8 = compared("int8"), by_16 = compared("int16");
  for (const auto& got : {by_8, by_16}) {
    const auto& divergence = got.at("kl_divergence");
    EXPECT_GT(divergence.at("mean").get<double>(), 0);
    EXPECT_GE(divergence.at("largest").get<double>(), divergence.at("p99_9").get<double>());
  }
  EXPECT_LT(by_16.at("kl_divergence").at("mean").get<double>(),
            by_8.at("kl_divergence").at("mean").get<double>());
  EXPECT_GT(by_16.at("same_best").get<double>(), 0.98);
  EXPECT_GE(by_16.at("same_best"), by_8.at("same_best"));
}

// A tiny model whose tokens are bytes.
TEST(PerplexityVerb, EqualsTheLoopOfTransformersDocumentation) {
  const TempDir dir;
  std::filesystem::copy(WEFT_SOURCE_DIR "/tests/models/data/mlx/plain_f32", dir.at("model"));
  testing::add_byte_tokenizer(dir.at("model"));
  const std::string short_text = dir.write("short", "a text");
  const auto refused =
      weft({"perplexity", dir.at("model"), "--file", short_text, "--against", kModel});
  EXPECT_EQ(refused.err, std::string("weft: ConfigError: --against: ") + kModel +
                             ": a vocabulary of 49152, expected the model's 256\n");
  std::ifstream golden(std::string(kTextData) + "documented_perplexity.json");
  const auto documented = nlohmann::json::parse(golden);
  std::string text(documented.at("bytes").get<size_t>(), '\0');
  std::ifstream in(std::string(kTextData) + "us_constitution.txt", std::ios::binary);
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  const std::string path = dir.write("text", text);
  for (const auto& expected : documented.at("cases")) {
    for (const std::string tp : {"1", "2"}) {
      SCOPED_TRACE(expected.dump() + " on " + tp);
      const auto got = weft_json({"perplexity", dir.at("model"), "--file", path, "--json", "--tp",
                                  tp, "--ctx-size", expected.at("ctx_size").dump(), "--stride",
                                  expected.at("stride").dump()});
      const auto value = expected.at("perplexity").get<double>();
      EXPECT_NEAR(got.at("perplexity").get<double>(), value, 1e-4 * value);
      for (const char* key : {"windows", "scored_tokens", "ctx_size", "stride"}) {
        EXPECT_EQ(got.at(key), expected.at(key)) << key;
      }
      // What the loop itself prints weights the windows by one token less each.
      const auto printed = expected.at("documented").get<double>();
      EXPECT_NEAR(got.at("perplexity").get<double>(), printed, 1e-2 * printed);
    }
  }
}

TEST(PerplexityVerb, WritesTwoLinesForPeople) {
  const TempDir dir;
  const auto result = weft({"perplexity", "-f", write_text(dir), "-c", "256"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(num_lines(result.out), 2) << result.out;
  EXPECT_EQ(result.out.rfind("perplexity 7.62", 0), 0U) << result.out;
  EXPECT_NE(result.out.find("254 tokens scored in 2 windows of 256"), std::string::npos)
      << result.out;
}

TEST(PerplexityVerb, RefusesInOneLine) {
  const TempDir dir;
  const std::string text = write_text(dir);
  const std::string few = dir.write("few", "one two");
  const struct {
    Strings args;
    int status;
    std::string err;
  } cases[] = {
      {{"-f", dir.at("none")}, 3, dir.at("none") + ": no such file; check the path"},
      {{"-f", text, "-m", dir.at("none")}, 3, dir.at("none") + ": no such file; check the path"},
      {{"-f", text, "-c", "3"}, 2, "--ctx-size: expected a whole number from 4 to"},
      {{"-f", text, "-c", "9000"}, 2, "--ctx-size: 9000, expected 4 to 8192 for this model"},
      {{"-f", text, "--stride", "0"}, 2, "--stride: expected a whole number from 1 to"},
      {{"-f", text, "-c", "64", "--stride", "65"},
       2,
       "--stride: 65, expected 1 to the window's 64"},
      {{"-f", text, "--tp", "0"}, 2, "--tp: expected a whole number from 1 to 1024, got '0'"},
      {{"-f", text, "--cache-type", "f8"}, 2, "--cache-type: f8 not in {f16,f32,q8_0}"},
      {{"-f", text, "--cache-type", "f16", "--device", "cuda"},
       2,
       "--cache-type: f16 with --device cuda, expected f32; leave one of them out"},
      {{}, 2, "perplexity: --file is required"},
      {{"-f", few}, 2, "2 tokens of text, expected at least one window of 512"},
      {{"-f", few, "--tp", "2"}, 2, "2 tokens of text, expected at least one window of 512"},
  };
  for (const auto& refusal : cases) {
    const auto result = weft(joined({"perplexity"}, refusal.args));
    EXPECT_EQ(result.status, refusal.status) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(num_lines(result.err), 1) << result.err;
    EXPECT_NE(result.err.find(refusal.err), std::string::npos) << result.err;
  }
}

}  // namespace
}  // namespace weft::cli
