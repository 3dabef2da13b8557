#pragma once

#include <string>
#include <vector>

#include "weft/cli/options.h"

namespace weft::cli {

/// One verb of the program: a row of the table, which needs no libtorch.
struct Verb {
  std::string name;
  /// One line for `weft help`.
  std::string summary;
  /// Prints the verb's help and returns true if its arguments ask for it. Throws ConfigError for
  /// arguments that are refused.
  bool (*shows_help)(const Args& args);
  /// Gets the arguments that follow the verb; returns the exit code; throws core::Error. Null for a
  /// verb that needs tensors, which is a row of tensor_verbs.h, too.
  int (*run)(const Args& args) = nullptr;
};

/// All verbs, in the order that help shows.
const std::vector<Verb>& verbs();

/// The verb of that name. Throws ConfigError if there is none.
const Verb& find_verb(const std::string& name);

/// Runs what the arguments ask a verb for; nothing but its help if they ask for that.
template <auto kParse, auto kRun>
int parse_and_run(const Args& args) {
  const auto options = kParse(args);
  return options.has_value() ? kRun(*options) : 0;
}

}  // namespace weft::cli
