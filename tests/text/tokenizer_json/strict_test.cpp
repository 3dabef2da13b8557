#include <gtest/gtest.h>

#include <functional>

#include "tests/text/tokenizer_json/tokenizer_file.h"

namespace weft::text {
namespace {

using core::ConfigError;
using core::FormatError;
using core::Json;
using Ids = std::vector<TokenId>;

// A tokenizer over characters, with all that a published one has.
Json small_file() {
  return Json::parse(R"({
    "version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [{"id": 0, "content": "<unk>", "single_word": false, "lstrip": false,
                      "rstrip": false, "normalized": false, "special": true},
                     {"id": 6, "content": "<s>", "single_word": false, "lstrip": false,
                      "rstrip": false, "normalized": false, "special": true}],
    "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "_"},
    "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "\\p{L}+"}, "behavior": "Isolated",
                      "invert": false},
    "post_processor": {"type": "TemplateProcessing",
                       "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                                  {"Sequence": {"id": "A", "type_id": 0}}],
                       "pair": [],
                       "special_tokens": {"<s>": {"id": "<s>", "ids": [6], "tokens": ["<s>"]}}},
    "decoder": {"type": "Sequence", "decoders": [
                  {"type": "Replace", "pattern": {"String": "_"}, "content": " "},
                  {"type": "ByteFallback"}, {"type": "Fuse"},
                  {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>",
              "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": true,
              "byte_fallback": true, "ignore_merges": false,
              "vocab": {"<unk>": 0, "a": 1, "b": 2, "ab": 3, "_": 4, "<0x41>": 5},
              "merges": [["a", "b"]]}})");
}

using Change = std::function<void(Json&)>;

template <class E>
std::string error_of(const Change& change) {
  Json file = small_file();
  change(file);
  return message_of<E>([&] { tokenizer_of(file.dump()); });
}

Change set(const std::string& pointer, const Json& value) {
  return [=](Json& file) { file[Json::json_pointer(pointer)] = value; };
}

Change set_text(const std::string& pointer, const std::string& json) {
  return set(pointer, Json::parse(json));
}

constexpr char kRemedy[] =
    "; weft would give other ids than the model was trained on, use a model with a supported "
    "tokenizer";

TEST(TokenizerJson, ReadsTheSmallFileThatOtherTestsDamage) {
  const Tokenizer tokenizer = tokenizer_of(small_file().dump());
  EXPECT_EQ(tokenizer.encode("abA é<s>"), (Ids{3, 5, 4, 0, 0, 0, 0}));
  EXPECT_EQ(tokenizer.encode_with_special("<s>ba"), (Ids{6, 2, 1}));
  EXPECT_EQ(tokenizer.decode({4, 4, 3, 5}), " abA");
  EXPECT_EQ(tokenizer.prefix(), (Ids{6}));
  EXPECT_TRUE(tokenizer.is_special(0));
  EXPECT_EQ(tokenizer.vocab_size(), 7u);
}

TEST(TokenizerJson, RefusesByNameWhatItDoesNotDo) {
  const std::vector<std::pair<Change, std::string>> cases = {
      {set("/model/type", "Unigram"), "t.json.model.type: expected \"BPE\", got 'Unigram'"},
      {set("/model/dropout", 0.1), "t.json.model.dropout: expected no dropout, got 0.1"},
      {set("/model/end_of_word_suffix", "</w>"),
       "t.json.model.end_of_word_suffix: expected none, got '</w>'"},
      {set("/model/continuing_subword_prefix", "##"),
       "t.json.model.continuing_subword_prefix: expected none, got '##'"},
      {set_text("/normalizer", R"({"type": "Precompiled"})"),
       "t.json.normalizer.type: expected one of Sequence, NFC, NFD, NFKC, NFKD, Prepend, Replace, "
       "Strip, got 'Precompiled'"},
      {set_text("/pre_tokenizer", R"({"type": "BertPreTokenizer"})"),
       "t.json.pre_tokenizer.type: expected one of Sequence, ByteLevel, Digits, Metaspace, "
       "Punctuation, Split, got 'BertPreTokenizer'"},
      {set("/pre_tokenizer/behavior", "Joined"),
       "t.json.pre_tokenizer.behavior: expected Removed, Isolated, MergedWithPrevious, "
       "MergedWithNext or Contiguous, got 'Joined'"},
      {set_text("/pre_tokenizer",
                R"({"type": "Sequence", "pretokenizers": [{"type": "ByteLevel",
                    "add_prefix_space": false}, {"type": "Digits", "individual_digits": true}]})"),
       "t.json.pre_tokenizer.pretokenizers[1]: expected ByteLevel as the last step, got 'Digits'"},
      {set_text("/post_processor", R"({"type": "Other"})"),
       "t.json.post_processor.type: expected one of Sequence, BertProcessing, ByteLevel, "
       "RobertaProcessing, TemplateProcessing, got 'Other'"},
      {set("/decoder", nullptr), "t.json.decoder: expected a decoder, got none"},
      {set("/decoder/decoders/3/stop", 1), "t.json.decoder.decoders[3].stop: expected 0, got 1"},
      {set_text("/decoder/decoders", R"([{"type": "Fuse"}, {"type": "ByteFallback"}])"),
       "t.json.decoder.decoders[1]: expected the order Replace, ByteFallback, Fuse, Strip, got "
       "'ByteFallback'"},
      {set("/version", "2.0"), "t.json.version: expected \"1.0\", got '2.0'"}};
  for (const auto& [change, message] : cases) {
    EXPECT_EQ(error_of<ConfigError>(change), message + kRemedy);
  }
}

TEST(TokenizerJson, RefusesFieldsThatItDoesNotKnow) {
  for (const char* place : {"/model/drop_case", "/normalizer/drop_case", "/pre_tokenizer/drop_case",
                            "/added_tokens/0/drop_case", "/drop_case", "/post_processor/drop_case",
                            "/decoder/drop_case", "/decoder/decoders/1/drop_case"}) {
    const std::string message = error_of<ConfigError>(set(place, true));
    EXPECT_NE(message.find("expected only the keys "), std::string::npos) << place;
    EXPECT_NE(message.find("got 'drop_case'"), std::string::npos) << place;
  }
}

TEST(TokenizerJson, ShowsAPatternThatItCannotMatch) {
  EXPECT_EQ(error_of<ConfigError>(set("/pre_tokenizer/pattern/Regex", R"((\w+)\1)")),
            "t.json.pre_tokenizer.pattern.Regex: regular expression: \\w is not supported, got "
            "\"(\\w+)\\1\"; weft/text/regex/regex.h lists what weft understands, use a tokenizer "
            "of that kind");
}

TEST(TokenizerJson, RefusesDamagedVocabularies) {
  const std::vector<std::pair<Change, std::string>> cases = {
      {set("/model/vocab/b", 6),
       "t.json.model.vocab['b']: expected an id below 6, the number of tokens, got 6; ids must "
       "have no holes, the file is damaged"},
      {set("/model/vocab/b", -1),
       "t.json.model.vocab['b']: expected an id below 6, the number of tokens, got -1; ids must "
       "have no holes, the file is damaged"},
      {set("/model/vocab/b", 1),
       "t.json.model.vocab['b']: expected an id of its own, got 1, which is also 'a'; the file is "
       "damaged"},
      {set("/model/vocab/b", 1.5), "t.json.model.vocab['b']: expected an integer, got 1.5"},
      {set_text("/model/vocab", "{}"),
       "t.json.model.vocab: expected 1 to 1073741823 tokens, got 0; the file is damaged"},
      {set_text("/model/merges", R"([["a", "c"]])"),
       "t.json.model.merges[0]: expected tokens of the vocabulary, got unknown token 'c'; the file "
       "is damaged"},
      {set_text("/model/merges", R"(["b a"])"),
       "t.json.model.merges[0]: expected tokens of the vocabulary, got unknown token 'ba'; the "
       "file is damaged"},
      {set_text("/model/merges", R"(["a b c"])"),
       "t.json.model.merges[0]: expected \"left right\", got 'a b c'; the file is damaged"},
      {set_text("/model/merges", R"([["a"]])"),
       "t.json.model.merges[0]: expected two tokens, got 1; the file is damaged"},
      {set("/model/unk_token", "<x>"),
       "t.json.model.unk_token: expected a token of the vocabulary, got '<x>'; the file is "
       "damaged"},
      {set("/added_tokens/1/id", 7),
       "t.json.added_tokens[1].id: expected 6 for '<s>', as Hugging Face gives it, got 7; number "
       "added tokens behind the vocabulary without holes"},
      {set("/added_tokens/1/content", "<unk>"),
       "t.json.added_tokens[1].content: expected a spelling of its own, got '<unk>' again; the "
       "file is damaged"},
      {set_text("/post_processor/special_tokens/<s>/ids", "[7]"),
       "t.json.post_processor.special_tokens.<s>.ids[0]: expected an id below 7, got 7; the file "
       "is damaged"}};
  for (const auto& [change, message] : cases) EXPECT_EQ(error_of<FormatError>(change), message);
}

TEST(TokenizerJson, RefusesMissingPartsAndWrongTypes) {
  EXPECT_NE(error_of<FormatError>([](Json& file) { file.erase("model"); }), "");
  EXPECT_NE(error_of<FormatError>([](Json& file) { file["model"].erase("merges"); }), "");
  EXPECT_NE(error_of<FormatError>(set("/added_tokens/0/special", "yes")), "");
  EXPECT_NE(error_of<FormatError>(set("/normalizer", 3)), "");
  EXPECT_NE(error_of<FormatError>(set("/pre_tokenizer/pattern", "a")), "");
  EXPECT_NE(message_of<FormatError>([] { tokenizer_of("{"); }), "");
  EXPECT_NE(message_of<FormatError>([] { tokenizer_of("[]"); }), "");
  const std::string twice = message_of<FormatError>(
      [] { tokenizer_of(R"({"model": {"vocab": {"a": 0, "a": 1}, "merges": []}})"); });
  EXPECT_NE(twice.find("a"), std::string::npos);
}

TEST(TokenizerJson, RefusesDeepAndLongSequences) {
  std::string deep = R"({"type": "NFC"})";
  for (int i = 0; i < 100; ++i) {
    deep = R"({"type": "Sequence", "normalizers": [)" + deep + "]}";
  }
  const std::string text = small_file().dump();
  EXPECT_NE(message_of<FormatError>(
                [&] { tokenizer_of(R"({"normalizer": )" + deep + ", " + text.substr(1)); }),
            "");
  const Json many = {{"type", "Sequence"},
                     {"normalizers", std::vector<Json>(33, {{"type", "NFC"}})}};
  EXPECT_EQ(error_of<ConfigError>(set("/normalizer", many)),
            core::join("t.json.normalizer.normalizers[32]: expected at most 32 steps, got more",
                       kRemedy));
}

// A file of a few bytes must not make a text of gigabytes.
TEST(TokenizerJson, RefusesWhatWouldMakeTextsHuge) {
  const std::string too_long(33, 'x');
  const std::string shown = core::join("expected a text of at most 32 bytes, got '", too_long, "'");
  EXPECT_EQ(error_of<ConfigError>(set("/normalizer/content", too_long)),
            core::join("t.json.normalizer.content: ", shown, kRemedy));
  EXPECT_EQ(error_of<ConfigError>(set("/decoder/decoders/0/content", too_long)),
            core::join("t.json.decoder.decoders[0].content: ", shown, kRemedy));
  EXPECT_EQ(error_of<FormatError>(set("/added_tokens/1/content", std::string(1025, 'x'))),
            core::join("t.json.added_tokens[1]: ", core::quote(std::string(1025, 'x')),
                       ": expected at most 1024 bytes, got 1025; the file is damaged"));

  Json file = small_file();
  const Json twice = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}};
  file["normalizer"] = {{"type", "Sequence"}, {"normalizers", std::vector<Json>(30, twice)}};
  const Tokenizer tokenizer = tokenizer_of(file.dump());
  EXPECT_EQ(message_of<ConfigError>([&] { tokenizer.encode("xaa"); }),
            "text.Tokenizer: normalizer: makes 2049 bytes of a text of 3, expected at most 16 "
            "times as many; the tokenizer's file is damaged, fetch it again");
}

TEST(TokenizerJson, NeverMakesControlTokensOfTypedText) {
  Json file = small_file();
  file["added_tokens"].push_back(file["added_tokens"][0]);
  file["added_tokens"][2]["content"] = "ab";
  file["added_tokens"][2]["id"] = 3;
  file["model"]["ignore_merges"] = true;
  const Tokenizer tokenizer = tokenizer_of(file.dump());
  EXPECT_EQ(tokenizer.encode("ab"), (Ids{1, 2}));
  EXPECT_EQ(tokenizer.encode_with_special("ab"), (Ids{3}));
}

}  // namespace
}  // namespace weft::text
