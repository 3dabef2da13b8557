#include "weft/train/trainer/run_tokenizer.h"

#include <filesystem>
#include <optional>

#include "weft/io/tensor_file.h"
#include "weft/models/config/sources.h"
#include "weft/text/tokenizer_json/tokenizer_folder.h"

namespace weft::train {

DocumentTokenizer open_run_tokenizer(const std::string& path) {
  const std::filesystem::path given(path);
  if (given.extension() == ".gguf") {
    const auto file = io::TensorFile::open(path);
    return DocumentTokenizer(models::load_tokenizer(*file), models::load_chat_template(*file));
  }
  const bool is_folder = std::filesystem::is_directory(given);
  auto folder = text::read_tokenizer_folder(is_folder ? path : given.parent_path().string());
  std::optional<text::ChatTemplate> chat_template;
  if (folder.chat_templates.contains("default")) chat_template = folder.chat_template();
  return DocumentTokenizer(std::move(folder.tokenizer), std::move(chat_template));
}

}  // namespace weft::train
