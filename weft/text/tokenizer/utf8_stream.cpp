#include "weft/text/tokenizer/tokenizer.h"
#include "weft/text/unicode/utf8.h"

namespace weft::text {

std::string Utf8Stream::push(std::string_view bytes) {
  pending_ += bytes;
  std::string out;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const Utf8Step step = utf8_step(rest);
    if (step.cut) break;
    append_utf8(out, step.code);
    rest.remove_prefix(step.size);
  }
  pending_.erase(0, pending_.size() - rest.size());
  return out;
}

std::string Utf8Stream::finish() {
  std::string out = to_valid_utf8(pending_);
  pending_.clear();
  return out;
}

}  // namespace weft::text
