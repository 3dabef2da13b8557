#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "weft/cli/model/session.h"
#include "weft/cli/options.h"
#include "weft/generate/text_generator.h"

namespace weft::cli {

/// What writes texts with the session's model and tokenizer. Collective. Throws ConfigError if the
/// model does not have the context that is asked for.
generate::TextGenerator make_generator(const Session& session, const AnswerOptions& options);

/// The text that was given: `text` itself, stdin where that is "-", or a file's, without the line
/// break at its end. Rank 0 reads; the others get nothing. Throws as read_stdin and read_text_file.
std::string given_text(const Session& session, const std::string& text, const std::string& file);

/// Says on rank 0's stderr which seed the draws have, if the user did not.
void show_new_seed(const Session& session, const AnswerOptions& options);

/// Writes an answer's text to stdout as it comes, unless an object is printed at the end; ends the
/// answer after Ctrl-C and once the reader has gone. A new seed is shown before the first text, so
/// that a run which fails before it says nothing but its error. Both arguments must outlive it.
generate::TextSink answer_sink(const Session& session, const AnswerOptions& options);

/// Prints, on rank 0, what follows an answer: the end of its line, or the object of --json (text,
/// tokens, prompt_tokens, finish_reason, seed, timings, tp, speculation, and logprobs where they
/// were asked for). Returns the exit code: 130 after Ctrl-C.
int finish_answer(const generate::TextResult& answer, const Session& session,
                  const AnswerOptions& options, const text::Tokenizer& tokenizer);

}  // namespace weft::cli
