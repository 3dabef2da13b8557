#include "weft/cli/help/shell_completion.h"
#include "weft/cli/streams.h"
#include "weft/cli/verbs.h"
#include "weft/cli/verbs/run.h"
#include "weft/version.h"

namespace weft::cli {
namespace {

std::vector<VerbHelp> described_verbs() {
  std::vector<VerbHelp> described;
  for (const Verb& verb : verbs()) {
    const HelpCapture capture;
    static_cast<void>(verb.shows_help({"--help"}));
    described.push_back(capture.help());
    described.back().summary = verb.summary;
  }
  return described;
}

}  // namespace

int run_completion(const CompletionOptions& options) {
  const std::vector<VerbHelp> verbs = described_verbs();
  std::string text;
  if (options.format == "bash") text = bash_completion(verbs);
  if (options.format == "zsh") text = zsh_completion(verbs);
  if (options.format == "man") text = man_page(verbs, WEFT_VERSION);
  TextOutput().write(text);
  return 0;
}

}  // namespace weft::cli
