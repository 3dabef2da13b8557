#include "weft/train/data/chat_answers.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "weft/core/error.h"

namespace weft::train {
namespace {

using core::check;
using core::FormatError;

std::string spelling(const text::Tokenizer& tokenizer, text::TokenId id) {
  return id < 0 ? std::string() : std::string(tokenizer.bytes(id));
}

std::string text_of(const std::vector<text::ChatPiece>& pieces) {
  std::string text;
  for (const text::ChatPiece& piece : pieces) text += piece.text;
  return text;
}

// A word that stands nowhere in the text.
std::string new_word(const std::string& text) {
  std::string word = "answer";
  for (size_t i = 0; text.find(word) != std::string::npos; ++i) word = core::join("answer", i);
  return word;
}

size_t common_start(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                             a.begin());
}

size_t common_end(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend()).first -
                             a.rbegin());
}

}  // namespace

// One answer of a rendered conversation.
struct ChatAnswers::Turn {
  const std::vector<text::Message>& messages;
  size_t index;
  const std::vector<text::ChatPiece>& pieces;
  const std::string& text;
  const std::string& where;
};

ChatAnswers::ChatAnswers(text::ChatTemplate chat_template, const text::Tokenizer& tokenizer)
    : template_(std::move(chat_template)),
      bos_(spelling(tokenizer, tokenizer.vocabulary().bos)),
      eos_(spelling(tokenizer, tokenizer.vocabulary().eos)) {
  for (size_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const auto token = static_cast<text::TokenId>(id);
    if (tokenizer.is_end(token)) ends_.push_back(spelling(tokenizer, token));
  }
  try {
    text::ChatTemplate::Inputs question = inputs({{"user", "question"}});
    const std::string without = template_.render_text(question);
    question.add_generation_prompt = true;
    const std::string with = template_.render_text(question);
    if (with.starts_with(without)) generation_prompt_ = with.substr(without.size());
  } catch (const core::ConfigError&) {
    // A template that wants more than one question: answers begin where their text does.
  }
}

text::ChatTemplate::Inputs ChatAnswers::inputs(std::vector<text::Message> messages) const {
  return {.messages = std::move(messages),
          .bos_token = bos_,
          .eos_token = eos_,
          .add_generation_prompt = false};
}

std::string ChatAnswers::other_render(const Turn& turn, const std::string& answer) const {
  std::vector<text::Message> messages = turn.messages;
  messages[turn.index].content = answer;
  return template_.render_text(inputs(std::move(messages)));
}

size_t ChatAnswers::begin_of(const Turn& turn, size_t content_begin) const {
  // What users typed before may look like the generation prompt.
  size_t typed_end = 0, offset = 0;
  for (const text::ChatPiece& piece : turn.pieces) {
    if (offset >= content_begin) break;
    offset += piece.text.size();
    if (!piece.is_special) typed_end = std::min(offset, content_begin);
  }
  const size_t prompt_size = generation_prompt_.size();
  if (prompt_size == 0 || prompt_size > content_begin) return content_begin;
  const size_t prompt = turn.text.rfind(generation_prompt_, content_begin - prompt_size);
  const bool is_between = prompt != std::string::npos && prompt + prompt_size >= typed_end;
  return is_between ? prompt + prompt_size : content_begin;
}

size_t ChatAnswers::end_of(const Turn& turn, size_t content_end) const {
  // Only what the template itself writes next can end the turn.
  size_t offset = 0, limit = content_end;
  for (const text::ChatPiece& piece : turn.pieces) {
    const size_t piece_begin = std::exchange(offset, offset + piece.text.size());
    if (offset <= content_end) continue;
    if (piece.is_special && piece_begin <= content_end) limit = offset;
    break;
  }
  const std::string_view tail =
      std::string_view(turn.text).substr(content_end, limit - content_end);
  size_t first = tail.size(), size = 0;
  for (const std::string& end : ends_) {
    const size_t position = tail.find(end);
    if (position < first) std::tie(first, size) = std::pair(position, end.size());
  }
  return size == 0 ? content_end : content_end + first + size;
}

TextSpan ChatAnswers::find(const Turn& turn) const {
  const std::string word = new_word(turn.text);
  const std::string other = other_render(turn, word);
  const size_t position = other.find(word);
  const bool is_once =
      position != std::string::npos && other.find(word, position + 1) == std::string::npos;
  check<FormatError>(is_once, turn.where, ": messages[", turn.index,
                     "]: expected that the chat template writes this answer once, got ",
                     position == std::string::npos ? "none" : "more than one",
                     "; remove the line or use another chat template");
  const std::string_view before = std::string_view(other).substr(0, position);
  const std::string_view behind = std::string_view(other).substr(position + word.size());
  const size_t begin = common_start(turn.text, before);
  const size_t end =
      turn.text.size() - common_end(std::string_view(turn.text).substr(begin), behind);
  return {begin_of(turn, begin), end_of(turn, end)};
}

RenderedChat ChatAnswers::render(const std::vector<text::Message>& messages,
                                 const std::string& where) const {
  RenderedChat chat;
  try {
    chat.pieces = template_.render(inputs(messages));
    const std::string text = text_of(chat.pieces);
    for (size_t i = 0; i < messages.size(); ++i) {
      if (messages[i].role != "assistant") continue;
      chat.answers.push_back(find({messages, i, chat.pieces, text, where}));
    }
  } catch (const core::ConfigError& error) {
    core::fail<FormatError>(where, ": messages: the chat template refuses them: ", error.what());
  }
  return chat;
}

}  // namespace weft::train
