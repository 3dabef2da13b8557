#include "weft/cli/answer.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "weft/cli/streams.h"
#include "weft/core/files/file.h"
#include "weft/core/json.h"
#include "weft/models/config/sources.h"

namespace weft::cli {
namespace {

nlohmann::json to_json(const generate::TextResult& answer, const Session& session,
                       const generate::GenerateOptions& options, const text::Tokenizer& tokenizer) {
  const generate::GenerateResult& result = answer.result;
  const auto rate = [](double count, double seconds) {
    return seconds > 0 ? count / seconds : 0.0;
  };
  nlohmann::json object = {
      {"text", answer.text},
      {"tokens", result.tokens},
      {"prompt_tokens", result.num_prompt_tokens},
      {"finish_reason", generate::to_text(result.finish_reason)},
      {"seed", options.sampler.seed},
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
  if (options.num_logprobs < 0) return object;
  auto& logprobs = object["logprobs"] = nlohmann::json::array();
  for (const generate::DrawnToken& token : result.logprobs) {
    logprobs.push_back(generate::to_json(token, tokenizer));
  }
  return object;
}

}  // namespace

generate::TextGenerator make_generator(const Session& session, const AnswerOptions& options) {
  return {session.loaded.model, models::load_tokenizer(*session.file), options.context};
}

std::string given_text(const Session& session, const std::string& text, const std::string& file) {
  constexpr uint64_t kMostBytes = uint64_t{64} << 20;
  if (!session.is_root()) return "";
  if (!file.empty()) return without_last_break(core::read_text_file(file, kMostBytes));
  return text == "-" ? without_last_break(read_stdin()) : text;
}

void show_new_seed(const Session& session, const AnswerOptions& options) {
  if (!session.is_root() || !options.is_seed_new || options.is_json) return;
  std::fprintf(stderr, "weft: seed %llu\n",
               static_cast<unsigned long long>(options.text.generate.sampler.seed));
}

generate::TextSink answer_sink(const Session& session, const AnswerOptions& options) {
  return [&session, &options, is_first = true](const std::string& text) mutable {
    if (is_first) show_new_seed(session, options);
    is_first = false;
    return !is_interrupted() && (options.is_json || TextOutput().write(text));
  };
}

int finish_answer(const generate::TextResult& answer, const Session& session,
                  const AnswerOptions& options, const text::Tokenizer& tokenizer) {
  if (session.is_root()) {
    TextOutput().write(
        options.is_json
            ? core::dump_json(to_json(answer, session, options.text.generate, tokenizer)) + "\n"
            : "\n");
  }
  return is_interrupted() ? interrupted_status() : 0;
}

}  // namespace weft::cli
