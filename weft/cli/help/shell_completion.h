#pragma once

#include <string>
#include <vector>

#include "weft/cli/help/help_text.h"

namespace weft::cli {

/// A script that completes verbs, flags and files in bash.
std::string bash_completion(const std::vector<VerbHelp>& verbs);
/// The same for zsh, with what flags are for.
std::string zsh_completion(const std::vector<VerbHelp>& verbs);
/// The page that `man weft` shows, in roff's man macros.
std::string man_page(const std::vector<VerbHelp>& verbs, const std::string& version);

}  // namespace weft::cli
