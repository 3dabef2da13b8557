// Damaged tokenizer.json files may only give a weft error, or a tokenizer that works.
#include <gtest/gtest.h>

#include <random>

#include "tests/text/tokenizer_json/tokenizer_file.h"
#include "weft/text/chat_template.h"

namespace weft::text {
namespace {

using Random = std::mt19937;

int rounds(int usual) {
  const char* more = std::getenv("WEFT_TEXT_ROUNDS");
  return more != nullptr ? std::atoi(more) : usual;
}

// True if the text is a tokenizer; then it is used.
bool survives(const std::string& text) {
  try {
    const Tokenizer tokenizer = tokenizer_of(text);
    const std::string typed = "It's  2024,\n\n naïve<|im_end|> 日本 <s>\xFF";
    const std::vector<ChatPiece> chat = {{"<s>a", true}, {typed, false}, {"\n", true}};
    tokenizer.decode(tokenizer.encode(typed), true);
    tokenizer.decode(tokenizer.encode_with_special(typed), true);
    tokenizer.decode(tokenizer.encode_chat(chat));
    return true;
  } catch (const core::FormatError& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
  } catch (const core::ConfigError& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
  }
  return false;
}

// All but the long lists, whose members are alike.
std::string short_text(const std::string& shape) {
  core::Json file = core::Json::parse(shape_text(shape));
  core::Json& merges = file["model"]["merges"];
  if (merges.size() > 6) merges.erase(merges.begin() + 6, merges.end());
  return file.dump();
}

TEST(TokenizerJsonMutations, OfBytesGiveOnlyWeftErrors) {
  Random random(31);
  size_t right = 0, wrong = 0;
  for (const char* shape : {"llama2", "added", "mistral", "deepseek3"}) {
    const std::string text = short_text(shape);
    for (int round = 0; round < rounds(60); ++round) {
      std::string damaged = text;
      for (size_t change = random() % 3; change < 3; ++change) {
        const size_t at = random() % damaged.size();
        const size_t kind = random() % 4;
        if (kind == 0) damaged[at] = static_cast<char>(random());
        if (kind == 1) damaged.erase(at, random() % 20);
        if (kind == 2) damaged.insert(at, damaged.substr(random() % damaged.size(), random() % 20));
        if (kind == 3) damaged[at] = "{}[]\",:0-9aet\\"[random() % 14];
      }
      ++(survives(damaged) ? right : wrong);
    }
  }
  EXPECT_GT(right, 0u);
  EXPECT_GT(wrong, 50u);
}

void collect(core::Json& value, std::vector<core::Json*>& out) {
  out.push_back(&value);
  if (!value.is_structured()) return;
  for (core::Json& member : value) collect(member, out);
}

core::Json random_value(Random& random, const std::vector<core::Json*>& values) {
  switch (random() % 8) {
    case 0:
      return nullptr;
    case 1:
      return static_cast<int64_t>(random()) - 5;
    case 2:
      return static_cast<int64_t>(random() % 700) - 1;
    case 3:
      return random() % 2 == 0;
    case 4:
      return "";
    case 5:
      return std::string(random() % 5, "a[(|{\\"[random() % 6]);
    case 6:
      return core::Json::array();
    default:
      return *values[random() % values.size()];
  }
}

TEST(TokenizerJsonMutations, OfValuesGiveOnlyWeftErrors) {
  Random random(32);
  size_t right = 0, wrong = 0;
  for (const char* shape : {"llama2", "added", "metaspace", "behaviors", "roberta"}) {
    core::Json file = core::Json::parse(short_text(shape));
    file["model"].erase("vocab");
    for (int round = 0; round < rounds(60); ++round) {
      core::Json damaged = file;
      for (size_t change = random() % 3; change < 3; ++change) {
        std::vector<core::Json*> values;
        collect(damaged, values);
        *values[1 + random() % (values.size() - 1)] = random_value(random, values);
      }
      if (damaged["model"].is_object()) {
        damaged["model"]["vocab"] = core::Json::parse(short_text(shape))["model"]["vocab"];
      }
      ++(survives(damaged.dump()) ? right : wrong);
    }
  }
  EXPECT_GT(right, 10u);
  EXPECT_GT(wrong, 50u);
}

TEST(TokenizerJsonMutations, TruncationsAreRefused) {
  const std::string text = short_text("gemma");
  for (size_t size = 0; size + 1 < text.size(); size += 97) {
    EXPECT_FALSE(survives(text.substr(0, size))) << size;
  }
}

}  // namespace
}  // namespace weft::text
