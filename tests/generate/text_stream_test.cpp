#include "weft/generate/text_stream.h"

#include <gtest/gtest.h>

#include "tests/text/byte_vocabulary.h"

namespace weft::generate {
namespace {

constexpr int64_t kEnd = 256;
constexpr int64_t kControl = 257;

// A token for each byte, in their order, then one that ends texts and another control token.
text::Tokenizer byte_tokenizer() {
  text::Vocabulary vocabulary = testing::byte_vocabulary();
  for (const char* control : {"<end>", "<control>"}) {
    vocabulary.tokens.emplace_back(control);
    vocabulary.kinds.push_back(text::TokenKind::kControl);
  }
  vocabulary.eos = kEnd;
  return text::Tokenizer::make(vocabulary, "test");
}

std::vector<int64_t> bytes_of(const std::string& text) {
  std::vector<int64_t> tokens;
  for (const char byte : text) tokens.push_back(static_cast<unsigned char>(byte));
  return tokens;
}

// What each token brings, a '|' after each, '#' where the answer ends.
std::string streamed(const TextOptions& options, const std::vector<int64_t>& tokens) {
  const text::Tokenizer tokenizer = byte_tokenizer();
  TextStream stream(tokenizer, options);
  std::string out;
  for (const int64_t token : tokens) {
    const TextStream::Step step = stream.push(token);
    out += step.text + (step.verdict == Verdict::kStop ? "#" : "|");
    if (step.verdict == Verdict::kStop) break;
  }
  return out + stream.finish();
}

TextOptions with_stops(std::vector<std::string> stops) {
  TextOptions options;
  options.stops = std::move(stops);
  return options;
}

TEST(TextStream, GivesWholeCharacters) {
  EXPECT_EQ(streamed({}, bytes_of("a\xe2\x82\xac!")), "a|||\xe2\x82\xac|!|");
  EXPECT_EQ(streamed({}, bytes_of("a\xe2\x82")), "a|||\xef\xbf\xbd");
}

TEST(TextStream, EndsAtATokenThatEndsTexts) {
  EXPECT_EQ(streamed({}, {'a', kEnd, 'b'}), "a|#");
  TextOptions options;
  options.ignores_end = true;
  EXPECT_EQ(streamed(options, {'a', kEnd, 'b'}), "a||b|");
}

TEST(TextStream, HasNoTextForSpecialAndUnknownTokens) {
  EXPECT_EQ(streamed({}, {'a', kControl, 1000, 'b'}), "a|||b|");
}

TEST(TextStream, EndsBeforeAStopTextThatSpansTokens) {
  EXPECT_EQ(streamed(with_stops({"END"}), bytes_of("an END.")), "a|n| |||#");
}

TEST(TextStream, FindsAStopTextWhoseCharactersSpanTokens) {
  EXPECT_EQ(streamed(with_stops({"\xe2\x82\xac"}), bytes_of("5\xe2\x82\xac!")), "5|||#");
}

TEST(TextStream, GivesAtTheEndWhatOnlyBeganAStopText) {
  EXPECT_EQ(streamed(with_stops({"END"}), bytes_of("an EN")), "a|n| |||EN");
}

}  // namespace
}  // namespace weft::generate
