#include "weft/text/tokenizer_json/tokenizer_json.h"

#include "weft/core/error.h"
#include "weft/text/tokenizer_json/parts.h"

namespace weft::text {
namespace {

void check_top_level(const JsonField& root) {
  root.allow_only({"version", "truncation", "padding", "added_tokens", "normalizer",
                   "pre_tokenizer", "post_processor", "decoder", "model"});
  if (const auto version = root.find("version")) {
    if (version->text() != "1.0") version->refuse("\"1.0\"", core::quote(version->text()));
  }
  const JsonField model = root.at("model");
  const std::string type = model.text_or("type", "BPE");
  if (type != "BPE") model.at("type").refuse("\"BPE\"", core::quote(type));
}

// A member that may be missing, as null.
JsonField part(const JsonField& root, const std::string& key) {
  static const core::Json kNull;
  return root.find(key).value_or(JsonField(kNull, core::join(root.where(), ".", key)));
}

void add_added_tokens(const JsonField& root, const TokenizerChanges& changes, TokenizerSpec& spec) {
  Vocabulary& vocabulary = spec.vocabulary;
  TokenIds ids;
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    ids.emplace(vocabulary.tokens[i], static_cast<TokenId>(i));
  }
  spec.added = read_added_tokens(part(root, "added_tokens"), ids, changes);
  for (const AddedToken& token : spec.added) {
    if (static_cast<size_t>(token.id) == vocabulary.tokens.size()) {
      vocabulary.tokens.push_back(token.content);
      vocabulary.kinds.push_back(TokenKind::kNormal);
    }
    vocabulary.kinds[token.id] = token.is_special ? TokenKind::kControl : TokenKind::kUserDefined;
  }
}

// The unknown token comes out of what a user typed, whatever else it is.
void mark_unknown(const JsonField& root, size_t num_model_tokens, Vocabulary& vocabulary) {
  const auto name = root.at("model").find("unk_token");
  if (!name) return;
  for (size_t i = 0; i < num_model_tokens; ++i) {
    if (vocabulary.tokens[i] != name->text()) continue;
    vocabulary.kinds[i] = TokenKind::kUnknown;
    vocabulary.unknown = static_cast<TokenId>(i);
  }
}

void add_bytes(const DecoderPart& decoder, TokenizerSpec& spec) {
  Vocabulary& vocabulary = spec.vocabulary;
  std::vector<bool> is_added(vocabulary.tokens.size());
  for (const AddedToken& token : spec.added) is_added[token.id] = true;
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    const std::string& token = vocabulary.tokens[i];
    spec.bytes.push_back(decoder.bytes(token, is_added[i]));
    const bool is_byte = decoder.has_byte_fallback && byte_of_hex_token(token) >= 0;
    if (is_byte && vocabulary.kinds[i] == TokenKind::kNormal) {
      vocabulary.kinds[i] = TokenKind::kByte;
    }
  }
  spec.num_stripped = decoder.num_stripped;
  spec.stripped_from_first = decoder.stripped_from_first;
}

void check_added(const JsonField& root, const TokenizerSpec& spec) {
  for (const AddedToken& token : spec.added) {
    if (!token.is_normalized) continue;
    if (apply_steps(spec.normalizer, token.content).empty()) {
      part(root, "added_tokens")
          .refuse("text that the normalizer leaves", core::quote(token.content));
    }
  }
}

}  // namespace

TokenizerSpec parse_tokenizer_json(std::string_view text, const std::string& where,
                                   const TokenizerChanges& changes) {
  const core::Json file = core::parse_json(text, where);
  const JsonField root(file, where);
  check_top_level(root);
  TokenizerSpec spec;
  const JsonField model = root.at("model");
  spec.vocabulary.model = "tokenizer.json";
  spec.vocabulary.tokens = read_vocab(model.at("vocab"));
  const size_t num_model_tokens = spec.vocabulary.tokens.size();
  spec.vocabulary.kinds.assign(num_model_tokens, TokenKind::kNormal);
  add_added_tokens(root, changes, spec);
  mark_unknown(root, num_model_tokens, spec.vocabulary);
  spec.normalizer = read_normalizer(part(root, "normalizer"));
  check_added(root, spec);
  PreTokenizerPart pre_tokenizer = read_pre_tokenizer(part(root, "pre_tokenizer"), changes);
  spec.pre_tokenizer = std::move(pre_tokenizer.steps);
  spec.model.is_byte_level = pre_tokenizer.is_byte_level;
  read_model(model, num_model_tokens, spec);
  add_bytes(read_decoder(part(root, "decoder")), spec);
  read_post_processor(part(root, "post_processor"), spec);
  return spec;
}

}  // namespace weft::text
