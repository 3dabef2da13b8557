#include "weft/models/quantize/mix.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "tests/core/error_text.h"
#include "tests/models/model_files.h"

namespace weft::models {
namespace {

using testing::error_text;

// The fields of a line of tools/peers/make_mix_goldens.py.
std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields;
  std::istringstream in(line);
  for (std::string field; std::getline(in, field, '|');) fields.push_back(field);
  return fields;
}

class MixLine {
 public:
  explicit MixLine(const std::string& line) : fields_(fields_of(line)) {
    config_.num_layers = 10;
    config_.width = 256;
    config_.num_heads = 4;
    config_.num_kv_heads = 4 / std::stoll(fields_.at(0));
  }

  std::string type(const std::string& tensor, int64_t layer) const {
    const GgufMix& mix = find_mix(fields_.at(1), "test");
    return std::string(
        core::info(mixed_type(mix, config_,
                              {tensor, layer, layer, config_.num_layers, fields_.at(2) == "1"}))
            .name);
  }

  // As the file has them: one type if all layers have the same.
  std::string types(const std::string& part) const {
    std::string all;
    bool is_same = true;
    for (int64_t layer = 0; layer < config_.num_layers; ++layer) {
      const std::string own = type(core::join("blk.", layer, ".", part, ".weight"), layer);
      is_same &= own == type(core::join("blk.0.", part, ".weight"), 0);
      all += (layer == 0 ? "" : " ") + own;
    }
    return is_same ? all.substr(0, all.find(' ')) : all;
  }

  const std::string& field(size_t index) const { return fields_.at(index); }

 private:
  std::vector<std::string> fields_;
  ModelConfig config_;
};

TEST(Mix, GivesTheTypesOfLlamaCpp) {
  std::ifstream file(test::model_data("gguf_mixes.txt"));
  int lines = 0;
  for (std::string text; std::getline(file, text); ++lines) {
    SCOPED_TRACE(text);
    const MixLine line(text);
    for (const char* part : {"attn_q", "attn_k", "ffn_up", "ffn_gate"}) {
      EXPECT_EQ(line.types(part), line.field(3)) << part;
    }
    EXPECT_EQ(line.type("token_embd.weight", 0), line.field(4));
    EXPECT_EQ(line.type("output.weight", 0), line.field(5));
    EXPECT_EQ(line.types("attn_v"), line.field(6));
    EXPECT_EQ(line.types("attn_output"), line.field(7));
    EXPECT_EQ(line.types("ffn_down"), line.field(8));
  }
  EXPECT_EQ(lines, 64);
}

// Where only some layers have attention, its values are counted, not the layers.
TEST(Mix, CountsTheTensorsOfValues) {
  ModelConfig config;
  config.num_layers = 16;
  config.width = 256;
  config.num_heads = config.num_kv_heads = 4;
  const GgufMix& mix = find_mix("Q4_K_M", "test");
  std::vector<int64_t> sensitive;
  const std::vector<int64_t> layers = {2, 5, 8, 10, 12, 14};
  for (size_t i = 0; i < layers.size(); ++i) {
    const MixPlace place = {"blk.0.attn_v.weight", layers[i], static_cast<int64_t>(i), 6, false};
    if (mixed_type(mix, config, place) == core::Dtype::kQ6K) sensitive.push_back(layers[i]);
  }
  EXPECT_EQ(sensitive, (std::vector<int64_t>{8, 14}));
  config.num_layers = 80;
  EXPECT_EQ(mixed_type(mix, config, {"blk.11.attn_v.weight", 11, 11, 80, false}),
            core::Dtype::kQ5K);
  EXPECT_EQ(mixed_type(mix, config, {"blk.11.attn_qkv.weight", 11, 11, 80, false}),
            core::Dtype::kQ5K);
}

TEST(Mix, TakesSmallerBlocksWhereRowsAreNoneOf256) {
  using core::Dtype;
  EXPECT_EQ(fitting_type(Dtype::kQ4K, 512), Dtype::kQ4K);
  EXPECT_EQ(fitting_type(Dtype::kQ4K, 576), Dtype::kQ5_0);
  EXPECT_EQ(fitting_type(Dtype::kQ6K, 576), Dtype::kQ8_0);
  EXPECT_EQ(fitting_type(Dtype::kIQ4XS, 576), Dtype::kIQ4NL);
  EXPECT_EQ(fitting_type(Dtype::kQ4K, 44), Dtype::kF16);
}

TEST(Mix, RefusesOtherNames) {
  EXPECT_EQ(error_text([] { find_mix("Q4_K_X", "--type"); }),
            "ConfigError: --type: 'Q4_K_X', expected one of " + mix_names());
  EXPECT_EQ(find_mix("iq4_xs", "--type").base, core::Dtype::kIQ4XS);
}

}  // namespace
}  // namespace weft::models
