#include "weft/text/tokenizer/tokenizer.h"

#include "weft/core/error.h"
#include "weft/text/chat_template.h"
#include "weft/text/tokenizer/tokenizer_impl.h"
#include "weft/text/unicode/utf8.h"

namespace weft::text {

using core::check;
using core::ConfigError;

namespace {

// Symbols of a piece are linked by 32-bit indices.
constexpr size_t kMaxText = (size_t{1} << 31) - 1;

void check_size(size_t size) {
  check<ConfigError>(size <= kMaxText,
                     "text.Tokenizer: text: expected less than 2147483648 bytes, got ", size,
                     "; split it");
}

}  // namespace

Tokenizer Tokenizer::make(Vocabulary vocabulary, const std::string& where) {
  return make(spec_of(std::move(vocabulary), where));
}

Tokenizer Tokenizer::make(TokenizerSpec spec) {
  Tokenizer tokenizer;
  tokenizer.impl_ = std::make_shared<const Impl>(std::move(spec));
  return tokenizer;
}

size_t Tokenizer::vocab_size() const { return impl_->spec.vocabulary.tokens.size(); }

std::vector<TokenId> Tokenizer::encode(std::string_view text) const {
  check_size(text.size());
  const std::string valid = to_valid_utf8(text);
  return impl_->encode(valid, Stretches(valid.size(), false));
}

std::vector<TokenId> Tokenizer::encode_prompt(std::string_view text) const {
  std::vector<TokenId> ids = prefix();
  const std::vector<TokenId> own = encode(text);
  ids.insert(ids.end(), own.begin(), own.end());
  return ids;
}

std::vector<TokenId> Tokenizer::encode_whole(std::string_view text) const {
  std::vector<TokenId> ids = encode_prompt(text);
  ids.insert(ids.end(), suffix().begin(), suffix().end());
  return ids;
}

std::vector<TokenId> Tokenizer::encode_with_special(std::string_view text) const {
  check_size(text.size());
  const std::string valid = to_valid_utf8(text);
  return impl_->encode(valid, Stretches(valid.size(), true));
}

std::vector<TokenId> Tokenizer::encode_chat(const std::vector<ChatPiece>& pieces) const {
  std::string text;
  Stretches stretches;
  for (const ChatPiece& piece : pieces) {
    const std::string valid = to_valid_utf8(piece.text);
    stretches.add(valid.size(), piece.is_special);
    text += valid;
  }
  check_size(text.size());
  return impl_->encode(text, stretches);
}

const std::vector<TokenId>& Tokenizer::prefix() const { return impl_->spec.prefix; }

const std::vector<TokenId>& Tokenizer::suffix() const { return impl_->spec.suffix; }

std::string_view Tokenizer::bytes(TokenId id) const {
  impl_->check_id(id);
  return impl_->spec.bytes[id];
}

std::string Tokenizer::decode(const std::vector<TokenId>& ids, bool skip_special) const {
  std::string out;
  DecodeState state;
  for (const TokenId id : ids) {
    if (!(is_special(id) && skip_special)) impl_->decode(id, state, out);
  }
  return out;
}

std::string TokenStream::push(TokenId id) {
  const bool is_special = tokenizer_.is_special(id);
  std::string bytes;
  if (!(is_special && skip_special_)) tokenizer_.impl_->decode(id, state_, bytes);
  return text_.push(bytes);
}

bool Tokenizer::is_special(TokenId id) const {
  impl_->check_id(id);
  const TokenKind kind = impl_->kind(id);
  return kind == TokenKind::kControl || kind == TokenKind::kUnknown;
}

TokenId Tokenizer::find(std::string_view token) const { return impl_->ids.find(token); }

const Vocabulary& Tokenizer::vocabulary() const { return impl_->spec.vocabulary; }

bool Tokenizer::is_end(TokenId id) const {
  impl_->check_id(id);
  return impl_->ends.contains(id);
}

}  // namespace weft::text
