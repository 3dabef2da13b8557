#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "weft/text/tokenizer/tokenizer.h"
#include "weft/train/data/chat_answers.h"
#include "weft/train/data/documents.h"

namespace weft::train {

/// The tokens of a document or of a part of one.
struct DocumentTokens {
  std::vector<text::TokenId> ids;
  /// Per token, whether the model is to learn to write it; empty: it is to learn all.
  std::vector<bool> is_learned;
  /// Nothing of the document follows.
  bool is_last = true;
};

/// Makes tokens of documents.
///
/// - Texts: what the tokenizer puts before every text (e.g. bos), the text, what it puts after it,
///   end-of-text. Long texts that come in parts have the ids of the whole, if their parts end where
///   the tokenizer cuts anyway; a tokenizer that puts a space before each text does so before
///   each part.
/// - Completions: the same, and learned is the completion with end-of-text. The prompt has the ids
///   that it has by itself, as it will when the model is used. Where a tokenizer can't put the
///   completion after it like this (it would write a space between), the token across the border is
///   learned.
/// - Conversations: what the chat template writes, and learned are the answers (ChatAnswers). A
///   token that is partly an answer's is learned. If the template ends the last answer with no
///   token, end-of-text follows it and is learned.
class DocumentTokenizer {
 public:
  /// `chat_template` may be missing if there are no conversations.
  explicit DocumentTokenizer(text::Tokenizer tokenizer,
                             std::optional<text::ChatTemplate> chat_template = std::nullopt);

  /// No ids for a document without text. Throws FormatError that names the document's line.
  DocumentTokens encode(const Document& document) const;
  /// <|endoftext|> or <|end_of_text|> if the vocabulary has it, else eos; -1 if it has none.
  text::TokenId end_of_text() const { return end_of_text_; }
  const text::Tokenizer& tokenizer() const { return tokenizer_; }
  /// Hash of all that ids depend on: the vocabulary, how the tokenizer cuts texts (on a sample, as
  /// its rules can't be looked into), the chat template, and the version of the rules above.
  uint64_t hash() const;

 private:
  DocumentTokens encode_text(const TextPart& part) const;
  DocumentTokens encode_completion(const Completion& document) const;
  DocumentTokens encode_chat(const RenderedChat& chat) const;
  std::vector<size_t> token_borders(const RenderedChat& chat,
                                    const std::vector<text::TokenId>& ids) const;
  void end_document(DocumentTokens& tokens) const;

  text::Tokenizer tokenizer_;
  std::optional<ChatAnswers> answers_;
  text::TokenId end_of_text_ = -1;
};

}  // namespace weft::train
