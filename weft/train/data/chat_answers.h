#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "weft/text/chat_template.h"
#include "weft/text/tokenizer/tokenizer.h"

namespace weft::train {

/// Bytes of a text, from `begin` to before `end`.
struct TextSpan {
  size_t begin = 0;
  size_t end = 0;
  bool operator==(const TextSpan&) const = default;
};

/// A conversation as the chat template writes it.
struct RenderedChat {
  std::vector<text::ChatPiece> pieces;
  /// What the model writes, one span per answer, ascending: from the end of the generation prompt
  /// through the token that ends the turn.
  std::vector<TextSpan> answers;
};

/// Finds the assistant's answers in what a chat template writes.
///
/// The whole conversation is rendered once as it is and once per answer with another text in its
/// place: what differs is the answer, whatever the template does around it (templates write earlier
/// turns differently from the last one, trim, and move parts). To that come what the template puts
/// between generation prompt and answer (an empty <think> block), and what follows up to the token
/// that ends the turn.
class ChatAnswers {
 public:
  ChatAnswers(text::ChatTemplate chat_template, const text::Tokenizer& tokenizer);

  /// Throws FormatError that begins with `where` if the template refuses the conversation or does
  /// not write an answer.
  RenderedChat render(const std::vector<text::Message>& messages, const std::string& where) const;
  /// Hash of the template's source.
  uint64_t template_hash() const { return template_.source_hash(); }

 private:
  struct Turn;
  text::ChatTemplate::Inputs inputs(std::vector<text::Message> messages) const;
  std::string other_render(const Turn& turn, const std::string& answer) const;
  TextSpan find(const Turn& turn) const;
  size_t begin_of(const Turn& turn, size_t content_begin) const;
  size_t end_of(const Turn& turn, size_t content_end) const;

  text::ChatTemplate template_;
  std::string bos_;
  std::string eos_;
  /// What add_generation_prompt adds; empty if the template does not know it.
  std::string generation_prompt_;
  /// Spellings of the tokens that end a turn.
  std::vector<std::string> ends_;
};

}  // namespace weft::train
