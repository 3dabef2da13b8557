#pragma once

#include <cstdint>
#include <string>

#include "weft/cli/options.h"
#include "weft/core/error.h"
#include "weft/generate/engine.h"

namespace weft::cli {

/// A line to the user on stderr: "weft chat: …", without control characters.
void note_line(const std::string& text);

/// The same of joined parts.
template <class... Parts>
void note(const Parts&... parts) {
  note_line(core::join(parts...));
}

/// "1 question", "2 questions".
std::string count(int64_t number, const std::string& what);

/// Says that an answer was cut, and by what; `setting` is what allows more tokens.
void note_if_cut(const generate::GenerateResult& result, const AnswerOptions& options,
                 int64_t context, const std::string& setting);

/// Shows, if stderr is a terminal, how many tokens there were and how fast they came.
void note_speed(const generate::GenerateResult& result, int64_t context);

}  // namespace weft::cli
