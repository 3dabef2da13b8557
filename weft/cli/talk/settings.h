#pragma once

#include <string>

#include "weft/cli/options.h"

namespace weft::cli {

/// Sets what a flag of answers sets, by its name without dashes: "temp"; "none" takes stops, biases
/// and grammars away. Throws ConfigError for a
/// name or value that is refused; `options` are then as they were.
void apply_setting(AnswerOptions& options, const std::string& name, const std::string& value);

/// The settings and their values, a line each.
std::string settings_text(const AnswerOptions& options);

}  // namespace weft::cli
