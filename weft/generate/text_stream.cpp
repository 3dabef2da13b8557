#include "weft/generate/text_stream.h"

#include <algorithm>

namespace weft::generate {

TextStream::TextStream(const text::Tokenizer& tokenizer, const TextOptions& options)
    : tokenizer_(tokenizer),
      ignores_end_(options.ignores_end),
      spelled_(options.spelled),
      stop_(options.stops) {}

TextStream::Step TextStream::push(int64_t token) {
  // A model may have rows for tokens that its tokenizer does not know.
  if (token >= static_cast<int64_t>(tokenizer_.vocab_size())) return {};
  const auto id = static_cast<text::TokenId>(token);
  if (tokenizer_.is_end(id) && !ignores_end_) return {"", Verdict::kStop};
  if (tokenizer_.is_special(id) && !std::ranges::count(spelled_, token)) return {};
  Step step;
  step.text = stop_.push(characters_.push(tokenizer_.bytes(id)));
  if (stop_.is_found()) step.verdict = Verdict::kStop;
  return step;
}

std::string TextStream::finish() {
  const std::string last = stop_.push(characters_.finish());
  return last + stop_.finish();
}

}  // namespace weft::generate
