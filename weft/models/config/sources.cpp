#include "weft/models/config/sources.h"

#include "weft/text/tokenizer_json/tokenizer_folder.h"

namespace weft::models {

// Each kind of source has its own file.
text::Tokenizer tokenizer_from_gguf(const io::TensorFile& file);
std::optional<text::ChatTemplate> chat_template_from_gguf(const io::TensorFile& file);

text::Tokenizer load_tokenizer(const io::TensorFile& file) {
  return file.is_gguf() ? tokenizer_from_gguf(file)
                        : text::read_tokenizer_folder(folder_of(file)).tokenizer;
}

std::optional<text::ChatTemplate> load_chat_template(const io::TensorFile& file) {
  if (file.is_gguf()) return chat_template_from_gguf(file);
  const auto loaded = text::read_tokenizer_folder(folder_of(file));
  if (!loaded.chat_templates.contains("default")) return std::nullopt;
  return loaded.chat_template();
}

}  // namespace weft::models
