#include "weft/text/tokenizer.h"

#include "weft/core/error.h"
#include "weft/text/chat_template.h"
#include "weft/text/normalize.h"
#include "weft/text/tokenizer_impl.h"
#include "weft/text/utf8.h"

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

void Tokenizer::Impl::encode_plain(std::string_view text, std::vector<TokenId>& out) const {
  const std::string normal = pre_tokenizer->nfc ? normalize_nfc(text) : std::string();
  if (pre_tokenizer->nfc) text = normal;
  BpeMerger merger(merges, byte_ids);
  for (const std::string_view piece : pre_tokenizer->split(text)) {
    if (pre_tokenizer->ignore_merges) {
      if (const auto it = whole_pieces.find(piece); it != whole_pieces.end()) {
        out.push_back(it->second);
        continue;
      }
    }
    merger.encode(piece, out);
  }
}

template <class StretchEnd>
std::vector<TokenId> Tokenizer::Impl::encode_special(std::string_view text,
                                                     StretchEnd stretch_end) const {
  std::vector<TokenId> out;
  size_t plain = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = stretch_end(at);
    const SpellingTrie::Match match =
        end > at ? specials.longest(text.substr(at, end - at)) : SpellingTrie::Match{};
    if (match.id < 0) {
      ++at;
      continue;
    }
    if (at > plain) encode_plain(text.substr(plain, at - plain), out);
    out.push_back(match.id);
    at += match.size;
    plain = at;
  }
  if (plain < text.size()) encode_plain(text.substr(plain), out);
  return out;
}

Tokenizer Tokenizer::make(Vocabulary vocabulary, const std::string& where) {
  Tokenizer tokenizer;
  tokenizer.impl_ = std::make_shared<const Impl>(std::move(vocabulary), where);
  return tokenizer;
}

size_t Tokenizer::vocab_size() const { return impl_->vocabulary.tokens.size(); }

std::vector<TokenId> Tokenizer::encode(std::string_view text) const {
  check_size(text.size());
  std::vector<TokenId> out;
  impl_->encode_plain(to_valid_utf8(text), out);
  return out;
}

std::vector<TokenId> Tokenizer::encode_with_special(std::string_view text) const {
  check_size(text.size());
  const std::string valid = to_valid_utf8(text);
  return impl_->encode_special(valid, [&](size_t) { return valid.size(); });
}

std::vector<TokenId> Tokenizer::encode_chat(const std::vector<ChatPiece>& pieces) const {
  std::string text;
  std::vector<size_t> ends;  // of pieces, or of neighbours of the same kind together
  std::vector<bool> special;
  for (const ChatPiece& piece : pieces) {
    text += to_valid_utf8(piece.text);
    if (!special.empty() && special.back() == piece.is_special) {
      ends.back() = text.size();
    } else {
      ends.push_back(text.size());
      special.push_back(piece.is_special);
    }
  }
  check_size(text.size());
  size_t current = 0;
  return impl_->encode_special(text, [&](size_t at) {
    while (ends[current] <= at) ++current;
    return special[current] ? ends[current] : at;
  });
}

std::string_view Tokenizer::bytes(TokenId id) const {
  impl_->check_id(id);
  return impl_->bytes[id];
}

std::string Tokenizer::decode(const std::vector<TokenId>& ids, bool skip_special) const {
  std::string out;
  for (const TokenId id : ids) {
    if (!(skip_special && is_special(id))) out += bytes(id);
  }
  return out;
}

bool Tokenizer::is_special(TokenId id) const {
  impl_->check_id(id);
  const TokenKind kind = impl_->kind(id);
  return kind == TokenKind::kControl || kind == TokenKind::kUnknown;
}

TokenId Tokenizer::find(std::string_view token) const {
  const auto it = impl_->ids.find(token);
  return it == impl_->ids.end() ? -1 : it->second;
}

const Vocabulary& Tokenizer::vocabulary() const { return impl_->vocabulary; }

bool Tokenizer::is_end(TokenId id) const {
  impl_->check_id(id);
  return impl_->ends.contains(id);
}

}  // namespace weft::text
