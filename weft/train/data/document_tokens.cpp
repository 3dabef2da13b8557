#include "weft/train/data/document_tokens.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "weft/core/error.h"
#include "weft/core/hash.h"

namespace weft::train {
namespace {

using Ids = std::vector<text::TokenId>;

// Changes whenever documents give other ids or masks than before.
constexpr uint64_t kRulesVersion = 1;

text::TokenId find_end_of_text(const text::Tokenizer& tokenizer) {
  for (const char* name : {"<|endoftext|>", "<|end_of_text|>"}) {
    const text::TokenId id = tokenizer.find(name);
    if (id >= 0 && tokenizer.is_special(id)) return id;
  }
  return tokenizer.vocabulary().eos;
}

void append(Ids& ids, const Ids& more) { ids.insert(ids.end(), more.begin(), more.end()); }

bool starts_with(const Ids& ids, const Ids& start) {
  return ids.size() >= start.size() && std::equal(start.begin(), start.end(), ids.begin());
}

std::vector<text::ChatPiece> first_bytes(const std::vector<text::ChatPiece>& pieces, size_t size) {
  std::vector<text::ChatPiece> start;
  for (const text::ChatPiece& piece : pieces) {
    if (size == 0) break;
    start.push_back({piece.text.substr(0, size), piece.is_special});
    size -= start.back().text.size();
  }
  return start;
}

// Where each token begins and the last one ends, if the tokens' bytes are just the text; else
// nothing.
std::vector<size_t> byte_offsets(const text::Tokenizer& tokenizer, const Ids& ids,
                                 const std::vector<text::ChatPiece>& pieces) {
  std::string text;
  for (const text::ChatPiece& piece : pieces) text += piece.text;
  std::vector<size_t> offsets = {0};
  for (const text::TokenId id : ids) {
    const std::string_view bytes = tokenizer.bytes(id);
    if (std::string_view(text).substr(offsets.back(), bytes.size()) != bytes) return {};
    offsets.push_back(offsets.back() + bytes.size());
  }
  return offsets.back() == text.size() ? offsets : std::vector<size_t>();
}

class Hasher {
 public:
  void add(uint64_t number) {
    hash_ = core::hash_bytes(std::as_bytes(std::span(&number, 1)), hash_);
  }
  void add(std::string_view text) {
    add(text.size());
    hash_ = core::hash_bytes(std::as_bytes(std::span(text)), hash_);
  }
  void add(const Ids& ids) {
    add(ids.size());
    for (const text::TokenId id : ids) add(static_cast<uint64_t>(id));
  }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = core::hash_bytes({});
};

// Where published tokenizers differ: letters, digits, spaces, line ends, other scripts, signs.
constexpr char kSample[] =
    "Hello World, it's 12345 o'clock!\n\n  \tA\r\nna\xC3\xAFve caf\x65\xCC\x81 \xE4\xBD\xA0\xE5\xA5"
    "\xBD \xF0\x9F\x99\x82 x=1;  y+=3.14  ";

}  // namespace

DocumentTokenizer::DocumentTokenizer(text::Tokenizer tokenizer,
                                     std::optional<text::ChatTemplate> chat_template)
    : tokenizer_(std::move(tokenizer)), end_of_text_(find_end_of_text(tokenizer_)) {
  if (chat_template) answers_.emplace(std::move(*chat_template), tokenizer_);
}

void DocumentTokenizer::end_document(DocumentTokens& tokens) const {
  append(tokens.ids, tokenizer_.suffix());
  const bool has_end = !tokens.ids.empty() && tokens.ids.back() == end_of_text_;
  if (end_of_text_ >= 0 && !has_end) tokens.ids.push_back(end_of_text_);
}

DocumentTokens DocumentTokenizer::encode_text(const TextPart& part) const {
  DocumentTokens tokens;
  tokens.is_last = part.is_last;
  if (part.text.empty()) return tokens;
  if (part.is_first) tokens.ids = tokenizer_.prefix();
  append(tokens.ids, tokenizer_.encode(part.text));
  if (part.is_last) end_document(tokens);
  return tokens;
}

DocumentTokens DocumentTokenizer::encode_completion(const Completion& document) const {
  const Ids prompt = tokenizer_.encode(document.prompt);
  Ids ids = tokenizer_.encode(document.prompt + document.completion);
  if (!starts_with(ids, prompt)) {
    Ids apart = prompt;
    append(apart, tokenizer_.encode(document.completion));
    if (tokenizer_.decode(apart) == tokenizer_.decode(ids)) ids = std::move(apart);
  }
  const auto border = std::mismatch(ids.begin(), ids.end(), prompt.begin(), prompt.end()).first;
  const auto num_before = tokenizer_.prefix().size() + static_cast<size_t>(border - ids.begin());
  DocumentTokens tokens;
  tokens.ids = tokenizer_.prefix();
  append(tokens.ids, ids);
  end_document(tokens);
  tokens.is_learned.assign(tokens.ids.size(), true);
  std::fill_n(tokens.is_learned.begin(), num_before, false);
  return tokens;
}

// The number of tokens before each answer's begin, and through its end.
std::vector<size_t> DocumentTokenizer::token_borders(const RenderedChat& chat,
                                                     const Ids& ids) const {
  const std::vector<size_t> offsets = byte_offsets(tokenizer_, ids, chat.pieces);
  const auto count_until = [&](size_t byte, bool is_end) {
    if (!offsets.empty()) {
      const auto above = is_end ? std::lower_bound(offsets.begin(), offsets.end(), byte)
                                : std::upper_bound(offsets.begin(), offsets.end(), byte) - 1;
      return static_cast<size_t>(above - offsets.begin());
    }
    // If the tokenizer changes texts, these are the tokens that the text up to there has on its
    // own.
    const Ids start = tokenizer_.encode_chat(first_bytes(chat.pieces, byte));
    const auto same = std::mismatch(ids.begin(), ids.end(), start.begin(), start.end());
    const bool is_cut = same.second != start.end() && same.first != ids.end();
    return static_cast<size_t>(same.first - ids.begin()) + (is_end && is_cut ? 1 : 0);
  };
  std::vector<size_t> borders;
  for (const TextSpan& answer : chat.answers) {
    borders.push_back(count_until(answer.begin, false));
    borders.push_back(count_until(answer.end, true));
  }
  return borders;
}

DocumentTokens DocumentTokenizer::encode_chat(const RenderedChat& chat) const {
  DocumentTokens tokens;
  tokens.ids = tokenizer_.encode_chat(chat.pieces);
  tokens.is_learned.assign(tokens.ids.size(), false);
  const std::vector<size_t> borders = token_borders(chat, tokens.ids);
  for (size_t i = 0; i + 1 < borders.size(); i += 2) {
    for (size_t j = borders[i]; j < borders[i + 1]; ++j) tokens.is_learned[j] = true;
  }
  const size_t last = borders.empty() ? 0 : borders.back();
  if (last == 0) return tokens;
  const bool has_end = tokenizer_.is_end(tokens.ids[last - 1]);
  if (!has_end && end_of_text_ >= 0) {
    // What the template puts after the answer would come between the answer and its end.
    tokens.ids.resize(last);
    tokens.is_learned.resize(last);
    tokens.ids.push_back(end_of_text_);
    tokens.is_learned.push_back(true);
  }
  return tokens;
}

DocumentTokens DocumentTokenizer::encode(const Document& document) const {
  if (const auto* part = std::get_if<TextPart>(&document.content)) return encode_text(*part);
  if (const auto* pair = std::get_if<Completion>(&document.content)) {
    return encode_completion(*pair);
  }
  core::check<core::FormatError>(answers_.has_value(), document.where,
                                 ": messages: expected a model with a chat template, got one "
                                 "without; give the data as prompt and completion");
  const auto& messages = std::get<Conversation>(document.content).messages;
  return encode_chat(answers_->render(messages, document.where));
}

uint64_t DocumentTokenizer::hash() const {
  Hasher hasher;
  hasher.add(kRulesVersion);
  const text::Vocabulary& vocabulary = tokenizer_.vocabulary();
  hasher.add(vocabulary.model);
  hasher.add(vocabulary.pre_tokenizer);
  for (const std::string& token : vocabulary.tokens) hasher.add(token);
  for (const text::TokenKind kind : vocabulary.kinds) hasher.add(static_cast<uint64_t>(kind));
  for (const std::string& merge : vocabulary.merges) hasher.add(merge);
  hasher.add(tokenizer_.prefix());
  hasher.add(tokenizer_.suffix());
  for (const text::TokenId id : {vocabulary.bos, vocabulary.eos, end_of_text_}) {
    hasher.add(static_cast<uint64_t>(id));
  }
  hasher.add(tokenizer_.encode(kSample));
  hasher.add(answers_ ? answers_->template_hash() : 0);
  return hasher.value();
}

}  // namespace weft::train
