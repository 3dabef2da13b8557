#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace weft::text {

using TokenId = int32_t;

/// What a token is for, as GGUF's token types.
enum class TokenKind { kNormal, kControl, kUserDefined, kByte, kUnknown, kUnused };

struct ChatPiece;

/// What a tokenizer is made of, however its file spelled it.
struct Vocabulary {
  /// "gpt2" (byte-level BPE) is what GGUF calls it.
  std::string model = "gpt2";
  /// Name of the pre-tokenizer pattern, e.g. "smollm", "gpt-2", "llama-bpe", "qwen2".
  std::string pre_tokenizer;
  std::vector<std::string> tokens;
  std::vector<TokenKind> kinds;
  /// "left right", best first.
  std::vector<std::string> merges;
  TokenId bos = -1;
  TokenId eos = -1;
  TokenId unknown = -1;
  bool add_bos = false;
  bool add_eos = false;
};

/// Byte-level BPE, equal to Hugging Face tokenizers id for id. Immutable, safe from several
/// threads.
class Tokenizer {
 public:
  /// `where` begins messages, e.g. the file's path. Throws FormatError (merge with unknown token,
  /// duplicate token, token that is no byte-level text, ids out of range), ConfigError for an
  /// unknown model or pre-tokenizer (lists the known ones).
  static Tokenizer make(Vocabulary vocabulary, const std::string& where);

  size_t vocab_size() const;
  /// Ids of `text`, any bytes; invalid UTF-8 counts as U+FFFD as HF does it. No special token is
  /// added and none is parsed out of the text. Bytes that the vocabulary lacks become its unknown
  /// token if it has one (kind kUnknown), else nothing, as in HF. O(length log length). Throws
  /// ConfigError for a text of 2 GiB or more.
  std::vector<TokenId> encode(std::string_view text) const;
  /// As `encode`, but spellings of control and user-defined tokens become these tokens. For
  /// templates, never for what a user typed.
  std::vector<TokenId> encode_with_special(std::string_view text) const;
  /// A rendered chat. Spellings of control and user-defined tokens become these tokens only where
  /// no character of them was typed by a user; the text between them is encoded across the pieces'
  /// borders, so the ids equal those of the whole prompt wherever users type no such spelling.
  std::vector<TokenId> encode_chat(const std::vector<ChatPiece>& pieces) const;
  /// The bytes of one token (special tokens: their spelling). Throws ConfigError for a bad id.
  std::string_view bytes(TokenId id) const;
  /// Bytes of all ids together; may end in half a character. Control tokens are left out on
  /// request.
  std::string decode(const std::vector<TokenId>& ids, bool skip_special = false) const;
  /// True for control and unknown tokens. Throws ConfigError for a bad id.
  bool is_special(TokenId id) const;
  /// The id whose spelling in the vocabulary is `token` (byte-level letters for a normal one), or
  /// -1.
  TokenId find(std::string_view token) const;
  const Vocabulary& vocabulary() const;
  /// True for tokens that end a turn: eos and the usual end-of-turn spellings (<|im_end|>,
  /// <|eot_id|>, …).
  bool is_end(TokenId id) const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

/// Turns a stream of token bytes into printable text: holds back the bytes of an unfinished UTF-8
/// character, replaces what can never become one by U+FFFD.
class Utf8Stream {
 public:
  /// The text that is complete now.
  std::string push(std::string_view bytes);
  /// What is left at the end, as U+FFFD if unfinished.
  std::string finish();

 private:
  std::string pending_;
};

}  // namespace weft::text
