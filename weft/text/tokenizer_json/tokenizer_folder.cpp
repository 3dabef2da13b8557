#include "weft/text/tokenizer_json/tokenizer_folder.h"

#include <algorithm>
#include <filesystem>

#include "weft/core/error.h"
#include "weft/core/files/file.h"
#include "weft/text/tokenizer_json/tiktoken_model.h"
#include "weft/text/tokenizer_json/tokenizer_config.h"
#include "weft/text/tokenizer_json/tokenizer_json.h"

namespace weft::text {

using core::check;
using core::ConfigError;
using core::FormatError;

namespace {

constexpr uint64_t kMaxTokenizer = 100'000'000, kMaxRanks = 20'000'000;
constexpr uint64_t kMaxConfig = 20'000'000, kMaxTemplate = 10'000'000;

std::string join_path(const std::string& folder, const std::string& name) {
  return (std::filesystem::path(folder) / name).string();
}

bool has_file(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}

// The JSON of a file, or null if there is none.
class OptionalJson {
 public:
  OptionalJson(const std::string& folder, const std::string& name)
      : path_(join_path(folder, name)) {
    if (has_file(path_)) json_ = core::parse_json(core::read_text_file(path_, kMaxConfig), path_);
  }
  JsonField field() const { return {json_, path_}; }

 private:
  std::string path_;
  core::Json json_;
};

TokenId find_id(const Vocabulary& vocabulary, const std::string& token) {
  if (token.empty()) return -1;
  const auto it = std::find(vocabulary.tokens.begin(), vocabulary.tokens.end(), token);
  return it == vocabulary.tokens.end() ? -1 : static_cast<TokenId>(it - vocabulary.tokens.begin());
}

void put_around(const TokenizerConfig::Around& around, const std::string& where,
                TokenizerSpec& spec) {
  const auto ids_of = [&](bool is_wanted, TokenId id, const char* name) {
    check<ConfigError>(!is_wanted || id >= 0, where, ": add_", name, "_token: expected a ", name,
                       "_token of the vocabulary, got none; name it in tokenizer_config.json");
    return is_wanted ? std::vector<TokenId>{id} : std::vector<TokenId>();
  };
  spec.prefix = ids_of(around.bos, spec.vocabulary.bos, "bos");
  spec.suffix = ids_of(around.eos, spec.vocabulary.eos, "eos");
}

// "eos_token_id" is one id or a list of them.
std::vector<TokenId> read_ends(const JsonField& file, size_t vocab_size) {
  std::vector<TokenId> ends;
  const auto field = file.is_null() ? std::nullopt : file.find("eos_token_id");
  if (!field) return ends;
  for (const JsonField& member : field->is_list() ? field->list() : std::vector{*field}) {
    const int64_t id = member.integer();
    check<FormatError>(id >= 0, member.where(), ": expected a token id, got ", id,
                       "; the file is damaged");
    // Some models name an end that their tokenizer does not have.
    if (id < static_cast<int64_t>(vocab_size)) ends.push_back(static_cast<TokenId>(id));
  }
  return ends;
}

void read_template_files(const std::string& folder, std::map<std::string, std::string>& templates) {
  const std::string single = join_path(folder, "chat_template.jinja");
  if (has_file(single)) templates["default"] = core::read_text_file(single, kMaxTemplate);
  std::error_code error;
  const std::string more = join_path(folder, "additional_chat_templates");
  for (std::filesystem::directory_iterator it(more, error), end; it != end; it.increment(error)) {
    const std::filesystem::path& path = it->path();
    if (path.extension() != ".jinja" || !has_file(path.string())) continue;
    templates[path.stem().string()] = core::read_text_file(path.string(), kMaxTemplate);
  }
}

// A tokenizer.json counts before a tiktoken.model, of which some folders have both.
TokenizerSpec read_spec(const std::string& folder, const JsonField& config,
                        const TokenizerChanges& changes) {
  const std::string path = join_path(folder, "tokenizer.json");
  const std::string ranks = join_path(folder, "tiktoken.model");
  if (!has_file(path) && has_file(ranks)) {
    return parse_tiktoken_model(core::read_text_file(ranks, kMaxRanks), ranks, config, changes);
  }
  check<FormatError>(has_file(path), path,
                     ": expected a tokenizer.json, or Kimi's tiktoken.model, got no such file; "
                     "weft reads no other kind");
  return parse_tokenizer_json(core::read_text_file(path, kMaxTokenizer), path, changes);
}

}  // namespace

ChatTemplate LoadedTokenizer::chat_template(const std::string& name) const {
  const auto it = chat_templates.find(name);
  std::string known;
  for (const auto& [other, source] : chat_templates) {
    known += (known.empty() ? "" : ", ") + core::quote(other);
  }
  check<ConfigError>(it != chat_templates.end(), folder, ": chat template: expected ",
                     known.empty() ? "one in tokenizer_config.json or chat_template.jinja" : known,
                     ", got ", core::quote(name), "; use a model that was made for chats");
  return ChatTemplate::parse(it->second, core::join(folder, ": chat template ", name));
}

LoadedTokenizer read_tokenizer_folder(const std::string& folder) {
  const OptionalJson config_file(folder, "tokenizer_config.json");
  const OptionalJson special_file(folder, "special_tokens_map.json");
  TokenizerConfig config = read_tokenizer_config(config_file.field(), special_file.field());
  TokenizerSpec spec = read_spec(folder, config_file.field(), config.changes);
  spec.vocabulary.bos = find_id(spec.vocabulary, config.spelling("bos"));
  spec.vocabulary.eos = find_id(spec.vocabulary, config.spelling("eos"));
  if (config.around) put_around(*config.around, folder, spec);
  const OptionalJson generation(folder, "generation_config.json");
  spec.ends = read_ends(generation.field(), spec.vocabulary.tokens.size());
  if (spec.ends.empty()) {
    spec.ends =
        read_ends(OptionalJson(folder, "config.json").field(), spec.vocabulary.tokens.size());
  }
  read_template_files(folder, config.chat_templates);
  return {Tokenizer::make(std::move(spec)),
          config.spelling("bos"),
          config.spelling("eos"),
          config.spelling("unk"),
          config.spelling("pad"),
          std::move(config.chat_templates),
          folder};
}

}  // namespace weft::text
