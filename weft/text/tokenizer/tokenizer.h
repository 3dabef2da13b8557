#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft::text {

using TokenId = int32_t;

/// What a token is for, as GGUF's token types.
enum class TokenKind { kNormal, kControl, kUserDefined, kByte, kUnknown, kUnused };

struct ChatPiece;

/// What a tokenizer is made of, however its file spelled it.
struct Vocabulary {
  /// What GGUF calls it: "gpt2" (byte-level BPE), "llama" (SentencePiece's BPE) or "gemma4" (BPE of
  /// characters by a list of merges).
  std::string model = "gpt2";
  /// Name of the pre-tokenizer pattern, e.g. "smollm", "gpt-2", "llama-bpe", "qwen2".
  /// "gpt2" only.
  std::string pre_tokenizer;
  std::vector<std::string> tokens;
  std::vector<TokenKind> kinds;
  /// "left right", best first.
  std::vector<std::string> merges;
  /// "llama" only: one per token, the best is merged first.
  std::vector<float> scores = {};
  /// "llama" only: a space goes before each text, and comes off when it is decoded.
  bool add_space_prefix = true;
  TokenId bos = -1;
  TokenId eos = -1;
  TokenId unknown = -1;
  bool add_bos = false;
  bool add_eos = false;
};

struct TokenizerSpec;

/// Byte-level or SentencePiece BPE, equal to Hugging Face tokenizers id for id. Immutable, safe
/// from several threads. Read from tokenizer.json by tokenizer_folder.h.
class Tokenizer {
 public:
  /// `where` begins messages, e.g. the file's path. Throws FormatError (merge with unknown token,
  /// duplicate token, token that is no byte-level text, ids out of range), ConfigError for an
  /// unknown model or pre-tokenizer (lists the known ones).
  static Tokenizer make(Vocabulary vocabulary, const std::string& where);
  /// For readers of files.
  static Tokenizer make(TokenizerSpec spec);

  size_t vocab_size() const;
  /// Ids of `text`, any bytes; invalid UTF-8 counts as U+FFFD as HF does it. No special token is
  /// added and none is parsed out of the text; added tokens of a tokenizer.json that are not
  /// special are (as HF does it with `encode_special_tokens`). Bytes that the vocabulary lacks
  /// become its unknown token if it has one (kind kUnknown), else nothing, as in HF. O(length log
  /// length). Throws ConfigError for a text of 2 GiB or more.
  std::vector<TokenId> encode(std::string_view text) const;
  /// As `encode`, but spellings of control and user-defined tokens become these tokens. For
  /// templates, never for what a user typed.
  std::vector<TokenId> encode_with_special(std::string_view text) const;
  /// A rendered chat. Spellings of control and user-defined tokens become these tokens only where
  /// no character of them was typed by a user; the text between them is encoded across the pieces'
  /// borders, so the ids equal those of the whole prompt wherever users type no such spelling.
  std::vector<TokenId> encode_chat(const std::vector<ChatPiece>& pieces) const;
  /// A text that a model is to continue: `prefix()`, then `encode`.
  std::vector<TokenId> encode_prompt(std::string_view text) const;
  /// A text that is complete: `prefix()`, `encode` and `suffix()`, as HF encodes with
  /// `add_special_tokens`.
  std::vector<TokenId> encode_whole(std::string_view text) const;
  /// What the file's post-processor puts before (after) the ids of a text, e.g. bos. `encode` does
  /// not; chat templates write it themselves.
  const std::vector<TokenId>& prefix() const;
  const std::vector<TokenId>& suffix() const;
  /// The bytes of one token (special tokens: their spelling). Throws ConfigError for a bad id.
  std::string_view bytes(TokenId id) const;
  /// Bytes of all ids together; may end in half a character. Control tokens are left out on
  /// request. Where encoding puts a space before a text, that of the first token is left out.
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
  friend class TokenStream;
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

/// How far a text that is decoded token by token has come.
struct DecodeState {
  bool is_first = true;
  size_t num_stripped = 0;
  bool is_stripping = true;
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

/// Decodes ids one by one: what `push` and `finish` return, together, is `Tokenizer::decode` with
/// U+FFFD for what is not UTF-8.
class TokenStream {
 public:
  explicit TokenStream(Tokenizer tokenizer, bool skip_special = false)
      : tokenizer_(std::move(tokenizer)), skip_special_(skip_special) {}

  /// The text that is complete now. Throws ConfigError for a bad id.
  std::string push(TokenId id);
  /// What is left at the end, as U+FFFD if unfinished.
  std::string finish() { return text_.finish(); }

 private:
  Tokenizer tokenizer_;
  bool skip_special_;
  DecodeState state_;
  Utf8Stream text_;
};

}  // namespace weft::text
