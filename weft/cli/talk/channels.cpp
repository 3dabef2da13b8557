#include "weft/cli/talk/channels.h"

#include <utility>

#include "weft/serve/chat/tool_format.h"

namespace weft::cli {

Channels::Channels(const text::ChatTemplate& chat_template, const text::Tokenizer& tokenizer)
    : is_harmony_(serve::tool_format_of(chat_template) == serve::ToolFormat::kHarmony),
      answer_(serve::AnswerOptions{}) {
  if (!is_harmony_) return;
  for (const std::string_view mark : serve::harmony_marks()) {
    if (const text::TokenId id = tokenizer.find(mark); id >= 0) marks_.push_back(id);
  }
}

generate::TextOptions Channels::with_marks(generate::TextOptions options) const {
  options.spelled.insert(options.spelled.end(), marks_.begin(), marks_.end());
  return options;
}

generate::TextSink Channels::begin(generate::TextSink shown) {
  if (!is_harmony_) return shown;
  shown_ = std::move(shown);
  answer_ = serve::HarmonyAnswer(serve::AnswerOptions{});
  text_.clear();
  words_.clear();
  is_thinking_ = false;
  return [this](const std::string& text) { return show(answer_.push(text)); };
}

// The sink is told of a step without text, too, so that it can end the answer.
bool Channels::show(const serve::AnswerPiece& piece) {
  std::string text;
  if (!piece.reasoning.empty()) {
    if (!std::exchange(is_thinking_, true)) text += "<think>\n";
    text += piece.reasoning;
  }
  if (!piece.content.empty()) {
    if (std::exchange(is_thinking_, false)) text += "\n</think>\n\n";
    text += piece.content;
  }
  if (!shown_(text)) return false;
  text_ += text;
  words_ += piece.content;
  return true;
}

text::Message Channels::finish(generate::TextResult& result) {
  if (!is_harmony_) return {"assistant", result.text};
  const serve::AnswerPiece rest = answer_.finish();
  // Ranks without a reader have no text.
  if (!rest.content.empty() || !rest.reasoning.empty()) show(rest);
  result.text = text_;
  return {"assistant", words_};
}

}  // namespace weft::cli
