#include "weft/generate/text_generator.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/core/error_text.h"
#include "tests/models/model_files.h"
#include "tests/support/run_ranks.h"
#include "tests/text/byte_vocabulary.h"
#include "weft/generate/share_prompt.h"
#include "weft/models/load/load.h"

namespace weft::generate {
namespace {

using test::run_ranks;
using testing::error_text;

// 256 tokens.
constexpr char kPrompt[] = "The fox";

TextGenerator make_generator(const dist::World& world) {
  auto model =
      models::load_model(*io::TensorFile::open(test::model_data("mlx/plain_f32")), world.group())
          .model;
  return {std::move(model), text::Tokenizer::make(testing::byte_vocabulary(), "test"), 128};
}

// See tools/goldens/tiny_model.py.
nlohmann::json bos_goldens() {
  std::ifstream in(WEFT_SOURCE_DIR "/tests/generate/data/bos.json");
  return nlohmann::json::parse(in);
}

TextOptions text_options(std::vector<std::string> stops = {}) {
  TextOptions options;
  options.generate.max_tokens = 24;
  options.ignores_end = true;
  options.stops = std::move(stops);
  return options;
}

bool accept(const std::string&) { return true; }

// The answer's text on rank 0, and what the sink saw of it.
TextResult complete(TextGenerator& generator, const TextOptions& options) {
  std::string shown;
  const bool is_root = generator.group().rank() == 0;
  const TextResult answer =
      generator.complete(is_root ? kPrompt : "", options, [&](const std::string& text) {
        shown += text;
        return true;
      });
  EXPECT_EQ(shown, answer.text);
  EXPECT_TRUE(is_root || answer.text.empty());
  return answer;
}

TEST(TextGenerator, ContinuesRankZerosPrompt) {
  run_ranks(2, [](dist::World& world) {
    TextGenerator generator = make_generator(world);
    const TextResult answer = complete(generator, text_options());
    EXPECT_EQ(answer.result.tokens.size(), 24U);
    EXPECT_EQ(answer.result.num_prompt_tokens, 7);
    EXPECT_EQ(answer.result.finish_reason, FinishReason::kLength);
    EXPECT_EQ(share_tokens(world.group(), answer.result.tokens), answer.result.tokens);
    EXPECT_EQ(answer.text.empty(), world.rank() != 0);
  });
}

TEST(TextGenerator, ContinuesATextAsTransformersDoesWithItsBosAndWithout) {
  for (const int n : {1, 2, 3}) {
    run_ranks(n, [](dist::World& world) {
      for (const nlohmann::json& golden : bos_goldens()) {
        text::Vocabulary vocabulary = testing::byte_vocabulary();
        vocabulary.bos = golden.at("bos");
        vocabulary.add_bos = golden.at("adds_bos");
        auto model = models::load_model(*io::TensorFile::open(test::model_data("mlx/plain_f32")),
                                        world.group())
                         .model;
        TextGenerator generator(std::move(model), text::Tokenizer::make(vocabulary, "test"), 128);
        const TextResult answer =
            generator.complete(golden.at("prompt").get<std::string>(), text_options(), accept);
        EXPECT_EQ(answer.result.tokens, golden.at("greedy").get<std::vector<int64_t>>());
        EXPECT_EQ(answer.result.num_prompt_tokens, golden.at("tokens").size());
      }
    });
  }
}

TEST(TextGenerator, EndsBeforeAStopTextOnAllRanks) {
  run_ranks(2, [](dist::World& world) {
    TextGenerator generator = make_generator(world);
    const std::string whole = complete(generator, text_options()).text;
    // Every rank has to name the same: it ends with the tenth byte of rank 0's text.
    const auto bytes = share_tokens(world.group(), {whole.begin(), whole.end()});
    const std::string text(bytes.begin(), bytes.end());
    ASSERT_GE(text.size(), 10U);
    const std::string stop = text.substr(7, 3);
    const TextResult answer = complete(generator, text_options({stop}));
    EXPECT_EQ(answer.result.finish_reason, FinishReason::kStop);
    EXPECT_LT(answer.result.tokens.size(), 24U);
    EXPECT_EQ(answer.text, world.rank() == 0 ? text.substr(0, text.find(stop)) : "");
  });
}

TEST(TextGenerator, EndsOnAllRanksWhereTheSinkSaysSo) {
  run_ranks(2, [](dist::World& world) {
    TextGenerator generator = make_generator(world);
    int num_calls = 0;
    const TextResult answer = generator.complete(
        kPrompt, text_options(), [&](const std::string&) { return ++num_calls < 4; });
    EXPECT_EQ(answer.result.finish_reason, FinishReason::kCancelled);
    EXPECT_EQ(answer.result.tokens.size(), 3U);
  });
}

TEST(TextGenerator, RefusesAnEmptyStopText) {
  run_ranks(1, [](dist::World& world) {
    TextGenerator generator = make_generator(world);
    EXPECT_EQ(error_text([&] { generator.complete(kPrompt, text_options({""}), accept); }),
              "ConfigError: generate: stop: expected a text, got an empty one");
  });
}

TEST(Chat, RemembersWhatWasSaid) {
  run_ranks(2, [](dist::World& world) {
    TextGenerator generator = make_generator(world);
    const auto format = text::ChatTemplate::parse(
        "{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}", "test");
    Chat chat(generator, format, "x");
    TextOptions options = text_options();
    options.generate.max_tokens = 4;
    const TextResult first = chat.reply("ab", options, accept);
    EXPECT_EQ(first.result.num_prompt_tokens, 9) << "s:x;u:ab;";
    const TextResult second = chat.reply("c", options, accept);
    const auto said = share_tokens(world.group(), {static_cast<int64_t>(first.text.size())});
    EXPECT_EQ(second.result.num_prompt_tokens, 9 + 3 + said[0] + 4);
  });
}

}  // namespace
}  // namespace weft::generate
