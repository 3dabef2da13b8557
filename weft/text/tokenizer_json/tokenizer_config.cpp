#include "weft/text/tokenizer_json/tokenizer_config.h"

#include <algorithm>
#include <charconv>

#include "weft/core/error.h"

namespace weft::text {
namespace {

// In the order in which transformers adds them.
constexpr const char* kSpecialNames[] = {"bos", "eos", "unk", "sep", "pad", "cls", "mask"};

// Classes that put their own post-processor in the place of tokenizer.json's.
struct TokenizerClass {
  std::string_view name;
  TokenizerConfig::Around around;
  std::string_view bos;
  std::string_view eos;
};
constexpr TokenizerClass kClasses[] = {
    {"LlamaTokenizer", {true, false}, "<s>", "</s>"},
    {"CodeLlamaTokenizer", {true, false}, "<s>", "</s>"},
    {"GemmaTokenizer", {true, false}, "<bos>", "<eos>"},
    {"CohereTokenizer", {true, false}, "<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>"},
    {"GPTNeoXTokenizer", {false, false}, "<|endoftext|>", "<|endoftext|>"}};

// A spelling, or an object with options. Tokens that are only named are special.
AddedToken read_token(const JsonField& field) {
  AddedToken token;
  token.is_special = true;
  if (field.is_text()) {
    token.content = field.text();
    return token;
  }
  token.content = field.at("content").text();
  token.is_special = field.flag_or("special", true);
  token.is_normalized = field.flag_or("normalized", !token.is_special);
  token.strips_left = field.flag_or("lstrip", false);
  token.strips_right = field.flag_or("rstrip", false);
  token.is_single_word = field.flag_or("single_word", false);
  return token;
}

std::vector<AddedToken> read_added_tokens_decoder(const JsonField& field) {
  core::check<core::FormatError>(field.is_object(), field.where(), ": expected an object, got ",
                                 field.value().type_name(), "; the file is damaged");
  std::map<TokenId, AddedToken> by_id;
  for (const auto& [key, value] : field.value().items()) {
    const JsonField member(value, core::join(field.where(), "[", core::quote(key), "]"));
    TokenId id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    core::check<core::FormatError>(
        error == std::errc() && end == key.data() + key.size() && id >= 0, member.where(),
        ": expected a token id as key, got ", core::quote(key), "; the file is damaged");
    member.allow_only({"content", "lstrip", "normalized", "rstrip", "single_word", "special"});
    AddedToken token = read_token(member);
    token.is_special = member.flag_or("special", false);
    token.id = id;
    by_id[id] = std::move(token);
  }
  std::vector<AddedToken> tokens;
  for (auto& [id, token] : by_id) tokens.push_back(std::move(token));
  return tokens;
}

class ConfigReader {
 public:
  ConfigReader(const JsonField& config, const JsonField& map) : config_(config), map_(map) {}

  TokenizerConfig read() {
    read_special();
    if (const auto added = member("added_tokens_decoder")) {
      out_.changes.added = read_added_tokens_decoder(*added);
    }
    add_special();
    read_options();
    read_class();
    read_templates();
    return std::move(out_);
  }

 private:
  std::optional<JsonField> member(const std::string& key) const {
    if (const auto field = config_.is_null() ? std::nullopt : config_.find(key)) return field;
    return std::nullopt;
  }
  // tokenizer_config.json counts before special_tokens_map.json.
  std::optional<JsonField> special_member(const std::string& key) const {
    if (const auto field = member(key)) return field;
    return map_.is_null() ? std::nullopt : map_.find(key);
  }

  void read_special() {
    for (const std::string name : kSpecialNames) {
      const auto field = special_member(name + "_token");
      if (!field) continue;
      special_.push_back(read_token(*field));
      out_.special[name] = special_.back().content;
    }
    const auto more = special_member("additional_special_tokens");
    if (!more) return;
    for (const JsonField& field : more->list()) special_.push_back(read_token(field));
  }

  void add_special() {
    std::vector<AddedToken>& added = out_.changes.added;
    for (AddedToken& token : special_) {
      if (token.content.empty()) continue;
      const auto is_same = [&](const AddedToken& other) { return other.content == token.content; };
      const auto it = std::find_if(added.begin(), added.end(), is_same);
      if (it != added.end()) {
        it->is_special = true;
        continue;
      }
      token.is_special = true;
      token.keeps_options = true;
      added.push_back(token);
    }
  }

  void read_options() {
    const auto split = member("split_special_tokens");
    if (split && split->flag()) split->refuse("false", "true");
    const auto prefix = member("add_prefix_space");
    out_.changes.add_prefix_space = prefix && prefix->flag();
  }

  void read_class() {
    const auto field = member("tokenizer_class");
    if (!field) return;
    std::string name = field->text();
    if (name.ends_with("Fast")) name.resize(name.size() - 4);
    for (const TokenizerClass& row : kClasses) {
      if (row.name != name) continue;
      TokenizerConfig::Around around = row.around;
      if (const auto bos = member("add_bos_token")) around.bos = bos->flag();
      if (const auto eos = member("add_eos_token")) around.eos = eos->flag();
      out_.around = around;
      out_.special.try_emplace("bos", row.bos);
      out_.special.try_emplace("eos", row.eos);
    }
  }

  void read_templates() {
    const auto field = member("chat_template");
    if (!field) return;
    if (field->is_text()) {
      out_.chat_templates["default"] = field->text();
      return;
    }
    for (const JsonField& named : field->list()) {
      const JsonField name = named.at("name");
      const bool is_new =
          out_.chat_templates.emplace(name.text(), named.at("template").text()).second;
      core::check<core::FormatError>(is_new, name.where(), ": expected a name of its own, got ",
                                     core::quote(name.text()), " again; the file is damaged");
    }
  }

  const JsonField& config_;
  const JsonField& map_;
  std::vector<AddedToken> special_;
  TokenizerConfig out_;
};

}  // namespace

std::string TokenizerConfig::spelling(const std::string& name) const {
  const auto it = special.find(name);
  return it == special.end() ? std::string() : it->second;
}

TokenizerConfig read_tokenizer_config(const JsonField& config,
                                      const JsonField& special_tokens_map) {
  return ConfigReader(config, special_tokens_map).read();
}

}  // namespace weft::text
