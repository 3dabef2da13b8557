#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "weft/cli/options.h"
#include "weft/cli/session.h"
#include "weft/generate/engine.h"

namespace weft::cli {

/// An answer and its text (rank 0; empty on the others).
struct Answer {
  generate::GenerateResult result;
  std::string text;
};

/// Generates from `prompt` and streams the text. Collective. `tokenizer` is used on rank 0.
Answer answer(generate::Engine& engine, const text::Tokenizer& tokenizer,
              const std::vector<int64_t>& prompt, const AnswerOptions& options);

/// The object that --json prints: text, tokens, prompt_tokens, finish_reason, timings, tp,
/// speculation.
nlohmann::json to_json(const Answer& answer, const Session& session);

/// Exit code for an answer: 130 after Ctrl-C.
int exit_code(const Answer& answer);

}  // namespace weft::cli
