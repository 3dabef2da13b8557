#include "weft/serve/chat/answer_parser.h"

namespace weft::serve {

AnswerParser::AnswerParser(const Options& options) : answer_(MarkedAnswer(options)) {
  if (options.format == ToolFormat::kHarmony) answer_ = HarmonyAnswer(options);
}

AnswerPiece AnswerParser::push(std::string_view text) {
  return std::visit([&](auto& answer) { return answer.push(text); }, answer_);
}

AnswerPiece AnswerParser::finish() {
  return std::visit([](auto& answer) { return answer.finish(); }, answer_);
}

}  // namespace weft::serve
