#include "weft/cli/answer.h"

#include <nlohmann/json.hpp>

#include "weft/cli/streams.h"
#include "weft/core/error.h"

namespace weft::cli {

using generate::Verdict;

Answer answer(generate::Engine& engine, const text::Tokenizer& tokenizer,
              const std::vector<int64_t>& prompt, const AnswerOptions& options) {
  Answer answer;
  TextOutput output;
  text::Utf8Stream stream;
  const auto show = [&](const std::string& text) {
    answer.text += text;
    return options.is_json || output.write(text);
  };
  const auto sink = [&](int64_t token) {
    if (is_interrupted()) return Verdict::kCancel;
    const auto id = static_cast<text::TokenId>(token);
    const bool is_known = token < static_cast<int64_t>(tokenizer.vocab_size());
    if (is_known && tokenizer.is_end(id) && !options.ignores_end) return Verdict::kStop;
    if (!is_known || tokenizer.is_special(id)) return Verdict::kContinue;
    return show(stream.push(tokenizer.bytes(id))) ? Verdict::kContinue : Verdict::kCancel;
  };
  answer.result = engine.generate(prompt, options.generate, sink);
  if (engine.model().group().rank() == 0) show(stream.finish());
  return answer;
}

nlohmann::json to_json(const Answer& answer, const Session& session) {
  const generate::GenerateResult& result = answer.result;
  const auto rate = [](double count, double seconds) {
    return seconds > 0 ? count / seconds : 0.0;
  };
  return {{"text", answer.text},
          {"tokens", result.tokens},
          {"prompt_tokens", result.num_prompt_tokens},
          {"finish_reason", generate::to_text(result.finish_reason)},
          {"tp", session.group().size()},
          {"speculation", {{"guessed", result.num_guessed}, {"right", result.num_guessed_right}}},
          {"timings",
           {{"load_s", session.load_seconds},
            {"prefill_s", result.prefill_seconds},
            {"decode_s", result.decode_seconds},
            {"prefill_tokens_per_s",
             rate(static_cast<double>(result.num_prompt_tokens), result.prefill_seconds)},
            {"decode_tokens_per_s",
             rate(static_cast<double>(result.tokens.size()), result.decode_seconds)}}}};
}

int exit_code(const Answer&) { return is_interrupted() ? 130 : 0; }

}  // namespace weft::cli
