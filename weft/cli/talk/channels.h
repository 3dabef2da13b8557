#pragma once

#include <string>
#include <vector>

#include "weft/generate/text_generator.h"
#include "weft/serve/chat/harmony_answer.h"
#include "weft/text/chat_template.h"

namespace weft::cli {

/// Shows answers in harmony's channels, gpt-oss's, as other models write theirs: what the model
/// says to itself stands between <think> and </think>, the answer behind it. Answers of other
/// models pass as they are.
class Channels {
 public:
  Channels(const text::ChatTemplate& chat_template, const text::Tokenizer& tokenizer);

  /// The options of an answer whose channels show in its text; the same on all ranks.
  generate::TextOptions with_marks(generate::TextOptions options) const;
  /// Begins an answer: takes its text and passes on to `shown` what the user sees.
  generate::TextSink begin(generate::TextSink shown);
  /// Ends the answer: its text becomes what was shown. Returns the message that the talk goes on
  /// from, which has what was said to the user alone.
  text::Message finish(generate::TextResult& result);

 private:
  bool show(const serve::AnswerPiece& piece);

  bool is_harmony_;
  std::vector<int64_t> marks_;
  generate::TextSink shown_;
  serve::HarmonyAnswer answer_;
  /// What was shown, and its words.
  std::string text_, words_;
  bool is_thinking_ = false;
};

}  // namespace weft::cli
