#include "weft/text/tokenizer_json/write_tokenizer_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>
#include <unordered_map>

#include "weft/core/error.h"
#include "weft/core/json.h"
#include "weft/text/bpe/sentencepiece.h"
#include "weft/text/tokenizer/pre_tokenizer.h"
#include "weft/text/unicode/utf8.h"

namespace weft::text {
namespace {

using Json = nlohmann::ordered_json;

const std::string kMark(kSpaceMark);

const std::string& spelling(const Vocabulary& vocabulary, TokenId id) {
  return vocabulary.tokens[static_cast<size_t>(id)];
}

Json sequence(const char* members, Json steps) {
  return {{"type", "Sequence"}, {members, std::move(steps)}};
}

// Tokens that are cut out of a text before it is encoded.
Json added_tokens(const Vocabulary& vocabulary) {
  Json list = Json::array();
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const TokenKind kind = vocabulary.kinds[id];
    const bool is_special = kind == TokenKind::kControl || kind == TokenKind::kUnknown;
    if (!is_special && kind != TokenKind::kUserDefined) continue;
    list.push_back({{"id", id},
                    {"content", vocabulary.tokens[id]},
                    {"single_word", false},
                    {"lstrip", false},
                    {"rstrip", false},
                    {"normalized", false},
                    {"special", is_special}});
  }
  return list;
}

// The tokens around a text: bos before and eos after it, where the vocabulary asks for them.
Json post_processor(const Vocabulary& vocabulary) {
  const bool has_bos = vocabulary.add_bos && vocabulary.bos >= 0;
  const bool has_eos = vocabulary.add_eos && vocabulary.eos >= 0;
  if (!has_bos && !has_eos) return nullptr;
  Json specials = Json::object();
  const auto special = [&](TokenId id, int type) -> Json {
    const std::string& text = spelling(vocabulary, id);
    specials[text] = {{"id", text}, {"ids", Json::array({id})}, {"tokens", Json::array({text})}};
    return Json::object({{"SpecialToken", {{"id", text}, {"type_id", type}}}});
  };
  const auto around = [&](Json& list, const char* name, int type) {
    if (has_bos) list.push_back(special(vocabulary.bos, type));
    list.push_back(Json::object({{"Sequence", {{"id", name}, {"type_id", type}}}}));
    if (has_eos) list.push_back(special(vocabulary.eos, type));
  };
  Json single = Json::array();
  around(single, "A", 0);
  Json pair = single;
  around(pair, "B", 1);
  return {{"type", "TemplateProcessing"},
          {"single", std::move(single)},
          {"pair", std::move(pair)},
          {"special_tokens", std::move(specials)}};
}

Json byte_level(bool uses_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", uses_regex}};
}

Json split(std::string_view pattern) {
  return {{"type", "Split"},
          {"pattern", Json::object({{"Regex", std::string(pattern)}})},
          {"behavior", "Isolated"},
          {"invert", false}};
}

Json pre_tokenizer(const PreTokenizer& family) {
  const bool is_sequence = !family.sequence.empty();
  if (!is_sequence && family.pattern == PreTokenizer::Pattern::kGpt2) {
    if (!family.isolate_digits) return byte_level(true);
    const Json digits = {{"type", "Digits"}, {"individual_digits", true}};
    return sequence("pretokenizers", Json::array({digits, byte_level(true)}));
  }
  Json steps = Json::array();
  for (const std::string_view pattern : family.sequence) steps.push_back(split(pattern));
  if (!is_sequence) steps.push_back(split(pattern_text(family)));
  steps.push_back(byte_level(false));
  return sequence("pretokenizers", std::move(steps));
}

// What differs between the kinds of tokenizers.
struct Parts {
  Json normalizer = nullptr;
  Json pre_tokenizer = nullptr;
  Json decoder = nullptr;
  Json unknown = nullptr;
  /// Over characters, with unknown ones as bytes.
  bool is_of_characters = false;
  bool ignore_merges = false;
};

Parts byte_level_parts(const Vocabulary& vocabulary, const std::string& where) {
  const PreTokenizer& family = find_pre_tokenizer(vocabulary.pre_tokenizer, where);
  Parts parts;
  if (family.nfc) parts.normalizer = Json::object({{"type", "NFC"}});
  parts.pre_tokenizer = pre_tokenizer(family);
  parts.decoder = byte_level(true);
  parts.ignore_merges = family.ignore_merges;
  return parts;
}

// Of SentencePiece's and of Gemma 4's, before whose texts no space goes.
Parts character_parts(const Vocabulary& vocabulary) {
  Parts parts;
  const Json replace = {
      {"type", "Replace"}, {"pattern", Json::object({{"String", " "}})}, {"content", kMark}};
  const Json prepend = {{"type", "Prepend"}, {"prepend", kMark}};
  Json decoders = Json::array();
  decoders.push_back(
      {{"type", "Replace"}, {"pattern", Json::object({{"String", kMark}})}, {"content", " "}});
  for (const char* type : {"ByteFallback", "Fuse"}) {
    decoders.push_back(Json::object({{"type", type}}));
  }
  if (vocabulary.model == "llama" && vocabulary.add_space_prefix) {
    decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    parts.normalizer = sequence("normalizers", Json::array({prepend, replace}));
  } else {
    parts.normalizer = sequence("normalizers", Json::array({replace}));
  }
  parts.decoder = sequence("decoders", std::move(decoders));
  if (vocabulary.unknown >= 0) parts.unknown = spelling(vocabulary, vocabulary.unknown);
  parts.is_of_characters = true;
  return parts;
}

// A vocabulary has many thousand members, which a JSON object of the library takes too long for.
std::string vocab_text(const Vocabulary& vocabulary) {
  std::string text = "{";
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    text +=
        (id == 0 ? "" : ",") + core::dump_json(vocabulary.tokens[id]) + ":" + std::to_string(id);
  }
  return text + "}";
}

using Merge = std::pair<std::string, std::string>;

std::vector<Merge> listed_merges(const Vocabulary& vocabulary) {
  std::vector<Merge> merges;
  for (const std::string& merge : vocabulary.merges) {
    const size_t space = merge.find(' ');
    merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
  }
  return merges;
}

// Every way to put a token together from two others, the best token first: what transformers'
// converter of SentencePiece models makes.
std::vector<Merge> scored_merges(const Vocabulary& vocabulary) {
  std::unordered_map<std::string_view, size_t> ids;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) ids[vocabulary.tokens[id]] = id;
  std::vector<std::tuple<float, size_t, size_t>> found;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::string_view token = vocabulary.tokens[id];
    if (vocabulary.kinds[id] != TokenKind::kNormal) continue;
    for (size_t cut = 1; cut < token.size(); ++cut) {
      const auto left = ids.find(token.substr(0, cut));
      const auto right = ids.find(token.substr(cut));
      if (left == ids.end() || right == ids.end()) continue;
      found.emplace_back(-vocabulary.scores[id], left->second, right->second);
    }
  }
  std::sort(found.begin(), found.end());
  std::vector<Merge> merges;
  for (const auto& [cost, left, right] : found) {
    merges.emplace_back(vocabulary.tokens[left], vocabulary.tokens[right]);
  }
  return merges;
}

std::string merges_text(const std::vector<Merge>& merges) {
  std::string text = "[";
  for (const auto& [left, right] : merges) {
    text += (text.size() == 1 ? "[" : ",[") + core::dump_json(left) + "," + core::dump_json(right) +
            "]";
  }
  return text + "]";
}

std::string model_text(const Vocabulary& vocabulary, const Parts& parts) {
  Json model = {{"type", "BPE"},
                {"dropout", nullptr},
                {"unk_token", parts.unknown},
                {"continuing_subword_prefix", nullptr},
                {"end_of_word_suffix", nullptr},
                {"fuse_unk", parts.is_of_characters},
                {"byte_fallback", parts.is_of_characters},
                {"ignore_merges", parts.ignore_merges}};
  std::string text = model.dump();
  text.pop_back();
  const bool is_scored = vocabulary.model == "llama";
  return text + ",\"vocab\":" + vocab_text(vocabulary) + ",\"merges\":" +
         merges_text(is_scored ? scored_merges(vocabulary) : listed_merges(vocabulary)) + "}";
}

}  // namespace

std::string to_tokenizer_json(const Vocabulary& vocabulary, const std::string& where) {
  const bool is_byte_level = vocabulary.model == "gpt2";
  const bool is_known =
      is_byte_level || vocabulary.model == "llama" || vocabulary.model == "gemma4";
  core::check<core::ConfigError>(is_known, where,
                                 ": tokenizer model: expected gpt2, llama or gemma4, got ",
                                 core::quote(vocabulary.model));
  const Parts parts =
      is_byte_level ? byte_level_parts(vocabulary, where) : character_parts(vocabulary);
  const Json head = {{"version", "1.0"},
                     {"truncation", nullptr},
                     {"padding", nullptr},
                     {"added_tokens", added_tokens(vocabulary)},
                     {"normalizer", parts.normalizer},
                     {"pre_tokenizer", parts.pre_tokenizer},
                     {"post_processor", post_processor(vocabulary)},
                     {"decoder", parts.decoder}};
  std::string text = head.dump();
  text.pop_back();
  return text + ",\"model\":" + model_text(vocabulary, parts) + "}\n";
}

std::string to_tokenizer_config(const Vocabulary& vocabulary, const std::string& chat_template) {
  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                 {"clean_up_tokenization_spaces", false}};
  const auto add = [&](const char* key, TokenId id) {
    if (id >= 0) config[key] = spelling(vocabulary, id);
  };
  add("bos_token", vocabulary.bos);
  add("eos_token", vocabulary.eos);
  add("unk_token", vocabulary.unknown);
  if (!chat_template.empty()) config["chat_template"] = chat_template;
  return config.dump(2) + "\n";
}

}  // namespace weft::text
