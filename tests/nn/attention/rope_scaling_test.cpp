#include <limits>
#include <nlohmann/json.hpp>

#include "tests/core/error_text.h"
#include "tests/ops/tensor_checks.h"
#include "weft/core/files/file.h"
#include "weft/nn/attention/rope_frequencies.h"

namespace weft::nn {
namespace {

using testing::error_text;

RopeScaling scaling_of(const nlohmann::json& json, int64_t positions) {
  RopeScaling scaling;
  scaling.type = rope_type_of(json.at("rope_type").get<std::string>(), "test");
  scaling.factor = json.value("factor", 1.0);
  scaling.original_positions = json.value("original_max_position_embeddings", positions);
  scaling.low_freq_factor = json.value("low_freq_factor", 1.0);
  scaling.high_freq_factor = json.value("high_freq_factor", 4.0);
  scaling.beta_fast = json.value("beta_fast", 32.0);
  scaling.beta_slow = json.value("beta_slow", 1.0);
  scaling.mscale = json.value("mscale", 0.0);
  scaling.mscale_all_dim = json.value("mscale_all_dim", 0.0);
  scaling.truncate = json.value("truncate", true);
  if (json.contains("attention_factor")) scaling.attention_factor = json.at("attention_factor");
  return scaling;
}

TEST(RopeFrequencies, AreThoseOfThePublishedImplementation) {
  const std::string path = std::string(WEFT_SOURCE_DIR) + "/tests/nn/data/rope.json";
  const auto cases = nlohmann::json::parse(core::read_text_file(path, 1 << 20));
  ASSERT_GE(cases.size(), 15U);
  for (const auto& item : cases) {
    SCOPED_TRACE(item.at("scaling").dump() + " at " + item.at("length").dump());
    const RopeScaling scaling = scaling_of(item.at("scaling"), item.at("positions"));
    check_rope_scaling(scaling, "test");
    const RopeFrequencies found =
        rope_frequencies(item.at("dim"), item.at("base"), scaling, item.at("length"));
    EXPECT_NEAR(found.attention_factor, item.at("attention_factor").get<double>(), 1e-12);
    const auto values = item.at("values").get<std::vector<double>>();
    const at::Tensor expected = at::tensor(values, at::kDouble);
    ASSERT_EQ(found.values.scalar_type(), at::kFloat);
    ASSERT_EQ(found.values.sizes(), expected.sizes());
    const at::Tensor error = (found.values.to(at::kDouble) - expected).abs() / expected;
    EXPECT_LE(error.max().item<double>(), 1e-6);
  }
}

TEST(RopeScaling, NamesTheTypesItKnows) {
  EXPECT_EQ(rope_type_of("llama3", "x"), RopeType::kLlama3);
  EXPECT_EQ(error_text([] { rope_type_of("ntk", "config.json"); }),
            "ConfigError: config.json: rope scaling 'ntk' is not supported, expected one of "
            "[default, linear, dynamic, llama3, yarn, longrope]");
}

TEST(RopeScaling, RefusesNumbersThatMakeNoFrequencies) {
  const auto error = [](RopeType type, void (*change)(RopeScaling&)) {
    RopeScaling scaling;
    scaling.type = type;
    scaling.factor = 2;
    scaling.original_positions = 64;
    change(scaling);
    return error_text([&] { check_rope_scaling(scaling, "F"); });
  };
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(error(RopeType::kLinear, [](RopeScaling& s) { s.factor = 0.5; }),
            "ConfigError: F: rope scaling: factor is 0.5, expected a number of at least 1");
  EXPECT_EQ(error(RopeType::kYarn, [](RopeScaling& s) { s.factor = kNan; }),
            "ConfigError: F: rope scaling: factor is nan, expected a number of at least 1");
  EXPECT_EQ(error(RopeType::kDynamic, [](RopeScaling& s) { s.original_positions = 0; }),
            "ConfigError: F: rope scaling: original_max_position_embeddings is 0, expected at "
            "least 1");
  EXPECT_EQ(error(RopeType::kLlama3, [](RopeScaling& s) { s.low_freq_factor = 0; }),
            "ConfigError: F: rope scaling: low_freq_factor is 0, expected a positive number");
  EXPECT_EQ(error(RopeType::kLlama3, [](RopeScaling& s) { s.high_freq_factor = 1; }),
            "ConfigError: F: rope scaling: high_freq_factor is 1, expected more than "
            "low_freq_factor");
  EXPECT_EQ(error(RopeType::kYarn, [](RopeScaling& s) { s.beta_slow = -1; }),
            "ConfigError: F: rope scaling: beta_slow is -1, expected a positive number");
  EXPECT_EQ(error(RopeType::kYarn, [](RopeScaling& s) { s.beta_fast = 0.5; }),
            "ConfigError: F: rope scaling: beta_fast is 0.5, expected at least beta_slow");
  EXPECT_EQ(error(RopeType::kYarn, [](RopeScaling& s) { s.attention_factor = 0; }),
            "ConfigError: F: rope scaling: attention_factor is 0, expected a positive number");
  EXPECT_EQ(error(RopeType::kProportional, [](RopeScaling& s) { s.turned_part = 1.5; }),
            "ConfigError: F: rope scaling: partial_rotary_factor is 1.5, expected more than 0 and "
            "at most 1");
  EXPECT_EQ(error(RopeType::kYarn, [](RopeScaling& s) { s.mscale = -1; }),
            "ConfigError: F: rope scaling: mscale is -1, expected no negative number");
}

}  // namespace
}  // namespace weft::nn
