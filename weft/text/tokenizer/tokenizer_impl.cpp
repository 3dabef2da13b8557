#include "weft/text/tokenizer/tokenizer_impl.h"

#include "weft/core/error.h"
#include "weft/text/unicode/utf8.h"

namespace weft::text {
namespace {

// Tokens that end a turn in published chat formats.
constexpr std::string_view kEndSpellings[] = {"<|im_end|>",
                                              "<|eot_id|>",
                                              "<|eom_id|>",
                                              "<|end|>",
                                              "<|endoftext|>",
                                              "<|end_of_text|>",
                                              "<end_of_turn>",
                                              "<|end_of_turn|>",
                                              "</s>",
                                              "<|END_OF_TURN_TOKEN|>",
                                              "<|return|>",
                                              "<|eot|>",
                                              "<EOT>",
                                              "<｜end▁of▁sentence｜>",
                                              "<|call|>",
                                              "<|observation|>",
                                              "<turn|>",
                                              "<|tool_response>",
                                              "<start_function_response>"};

// In harmony, gpt-oss's form, this ends one of an answer's messages.
constexpr std::string_view kMessageEnd = "<|end|>", kHarmonyMark = "<|channel|>",
                           kHarmonyEnd = "<|return|>";

}  // namespace

/// The ids so far, and what makes them.
struct Tokenizer::Impl::Encoding {
  BpeModel::Encoder encoder;
  bool is_first = true;
  std::vector<TokenId> ids;
};

Tokenizer::Impl::Impl(TokenizerSpec source)
    : spec(std::move(source)), ids(spec.vocabulary.tokens.size()) {
  index_tokens();
  // Where two spellings become one, Hugging Face takes the first special token.
  for (const bool is_special : {true, false}) {
    for (const AddedToken& token : spec.added) {
      if (token.is_special != is_special) continue;
      if (token.is_normalized) {
        normalized_finder.add(normalize(token.content), token);
      } else {
        raw_finder.add(token.content, token);
      }
    }
  }
}

void Tokenizer::Impl::index_tokens() {
  const Vocabulary& vocabulary = spec.vocabulary;
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    ids.add(vocabulary.tokens[i], static_cast<TokenId>(i));
  }
  ends.insert(spec.ends.begin(), spec.ends.end());
  if (vocabulary.eos >= 0) ends.insert(vocabulary.eos);
  const bool is_harmony = ids.find(kHarmonyMark) >= 0 && ids.find(kHarmonyEnd) >= 0;
  for (const std::string_view spelling : kEndSpellings) {
    const TokenId id = ids.find(spelling);
    if (is_harmony && spelling == kMessageEnd) continue;
    if (id >= 0 && kind(id) != TokenKind::kNormal) ends.insert(id);
  }
}

void Tokenizer::Impl::check_id(TokenId id) const {
  core::check<core::ConfigError>(id >= 0 && static_cast<size_t>(id) < spec.bytes.size(),
                                 "text.Tokenizer: token id: expected 0 to ", spec.bytes.size() - 1,
                                 ", got ", id, "; pass ids of this vocabulary");
}

std::string Tokenizer::Impl::normalize(std::string text) const {
  return apply_steps(spec.normalizer, std::move(text));
}

std::vector<TokenId> Tokenizer::Impl::encode(std::string_view text,
                                             const Stretches& stretches) const {
  Encoding encoding{BpeModel::Encoder(spec.model), true, {}};
  for (const AddedSpan& part : raw_finder.cut(text, stretches)) {
    encoding.is_first = part.span.begin == 0;
    if (part.id >= 0) {
      encoding.ids.push_back(part.id);
    } else {
      encode_chunk(text.substr(part.span.begin, part.span.end - part.span.begin),
                   stretches.slice(part.span.begin, part.span.end), encoding);
    }
  }
  return std::move(encoding.ids);
}

Stretches Tokenizer::Impl::normal_stretches(std::string_view text, std::string_view normal,
                                            const Stretches& stretches) const {
  if (spec.normalizer.empty()) return stretches;
  if (stretches.is_uniform() || !normalized_finder.has_guarded()) {
    return Stretches(normal.size(), stretches.is_template(0));
  }
  return stretches.normalized(text, [&](std::string part) { return normalize(std::move(part)); });
}

void Tokenizer::Impl::encode_chunk(std::string_view text, const Stretches& stretches,
                                   Encoding& encoding) const {
  const std::string changed = spec.normalizer.empty() ? "" : normalize(std::string(text));
  const std::string_view normal = spec.normalizer.empty() ? text : changed;
  const bool is_first = encoding.is_first;
  if (normalized_finder.is_empty()) {
    encode_normal(normal, is_first, encoding);
    return;
  }
  const Stretches normal_parts = normal_stretches(text, normal, stretches);
  for (const AddedSpan& part : normalized_finder.cut(normal, normal_parts)) {
    if (part.id >= 0) {
      encoding.ids.push_back(part.id);
    } else {
      encode_normal(normal.substr(part.span.begin, part.span.end - part.span.begin),
                    is_first && part.span.begin == 0, encoding);
    }
  }
}

void Tokenizer::Impl::encode_normal(std::string_view text, bool is_first,
                                    Encoding& encoding) const {
  if (text.empty()) return;
  Pieces pieces;
  pieces.list.push_back({text, is_first});
  for (const PieceStep& step : spec.pre_tokenizer) step(pieces);
  for (const Piece& piece : pieces.list) encoding.encoder.encode(piece.text, encoding.ids);
}

void Tokenizer::Impl::decode(TokenId id, DecodeState& state, std::string& out) const {
  std::string_view bytes = spec.bytes[id];
  std::string start;
  const std::string& dropped = spec.stripped_from_first;
  if (state.is_first && !dropped.empty()) {
    start = replace_step(literal_finder(dropped), "")(spec.vocabulary.tokens[id]);
    bytes = start;
  }
  state.is_first = false;
  while (state.is_stripping && !bytes.empty()) {
    state.is_stripping = bytes[0] == ' ' && state.num_stripped < spec.num_stripped;
    if (!state.is_stripping) break;
    ++state.num_stripped;
    bytes.remove_prefix(1);
  }
  out += bytes;
}

}  // namespace weft::text
