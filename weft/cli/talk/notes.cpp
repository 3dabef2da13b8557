#include "weft/cli/talk/notes.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "weft/core/terminal/printable.h"

namespace weft::cli {
namespace {

// As no-color.org asks for, and terminals that know no colors.
bool may_dim() {
  const char* const plain = std::getenv("NO_COLOR");
  const char* const terminal = std::getenv("TERM");
  return (plain == nullptr || *plain == '\0') && terminal != nullptr &&
         std::string_view(terminal) != "dumb";
}

}  // namespace

void note_line(const std::string& text) {
  std::fprintf(stderr, "weft chat: %s\n", core::printable(text).c_str());
}

std::string count(int64_t number, const std::string& what) {
  return core::join(number, " ", what, number == 1 ? "" : "s");
}

void note_if_cut(const generate::GenerateResult& result, const AnswerOptions& options,
                 int64_t context, const std::string& setting) {
  if (result.finish_reason != generate::FinishReason::kLength) return;
  const auto written = static_cast<int64_t>(result.tokens.size());
  if (written >= options.text.generate.max_tokens) {
    note("the answer was cut at ", count(written, "token"), "; ", setting, " allows more");
  } else {
    note("the answer was cut after ", count(written, "token"), ": the context of ", context,
         " is full; --ctx-size may allow more");
  }
}

void note_speed(const generate::GenerateResult& result, int64_t context) {
  if (::isatty(STDERR_FILENO) == 0) return;
  const auto written = static_cast<int64_t>(result.tokens.size());
  const double speed =
      result.decode_seconds > 0 ? static_cast<double>(written) / result.decode_seconds : 0;
  // The last token of an answer that is cut is written, but not kept.
  const int64_t kept = std::min(result.num_prompt_tokens + written, context);
  const bool is_dim = may_dim();
  std::fprintf(stderr,
               "%s[%lld tokens, %.1f tokens/s; first after %.2f s; %lld of %lld tokens of "
               "context]%s\n",
               is_dim ? "\033[2m" : "", static_cast<long long>(written), speed,
               result.prefill_seconds, static_cast<long long>(kept),
               static_cast<long long>(context), is_dim ? "\033[0m" : "");
}

}  // namespace weft::cli
