#include "weft/models/sources.h"

#include "weft/core/error.h"

namespace weft::models {

// Each kind of source has its own file.
text::Tokenizer tokenizer_from_gguf(const io::TensorFile& file);
std::optional<text::ChatTemplate> chat_template_from_gguf(const io::TensorFile& file);

text::Tokenizer load_tokenizer(const io::TensorFile& file) {
  core::check<core::ConfigError>(file.is_gguf(), file.path(),
                                 ": no tokenizer that weft reads; use a GGUF file");
  return tokenizer_from_gguf(file);
}

std::optional<text::ChatTemplate> load_chat_template(const io::TensorFile& file) {
  return file.is_gguf() ? chat_template_from_gguf(file) : std::nullopt;
}

}  // namespace weft::models
