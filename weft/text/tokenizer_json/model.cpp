#include <algorithm>
#include <limits>

#include "weft/core/error.h"
#include "weft/text/bpe/byte_alphabet.h"
#include "weft/text/tokenizer_json/parts.h"
#include "weft/text/unicode/utf8.h"

namespace weft::text {

using core::check;
using core::FormatError;
using core::quote;

std::vector<std::string> read_vocab(const JsonField& field) {
  check<FormatError>(field.is_object(), field.where(), ": expected an object, got ",
                     field.value().type_name(), "; the file is damaged");
  const size_t count = field.value().size();
  check<FormatError>(count > 0 && count <= std::numeric_limits<TokenId>::max() / 2, field.where(),
                     ": expected 1 to 1073741823 tokens, got ", count, "; the file is damaged");
  std::vector<std::string> tokens(count);
  std::vector<bool> is_taken(count);
  for (const auto& [token, value] : field.value().items()) {
    const std::string where = core::join(field.where(), "[", quote(token), "]");
    const int64_t id = core::to_int64(value, where);
    check<FormatError>(id >= 0 && id < static_cast<int64_t>(count), where,
                       ": expected an id below ", count, ", the number of tokens, got ", id,
                       "; ids must have no holes, the file is damaged");
    check<FormatError>(!is_taken[id], where, ": expected an id of its own, got ", id,
                       ", which is also ", quote(tokens[id]), "; the file is damaged");
    is_taken[id] = true;
    tokens[id] = token;
  }
  return tokens;
}

namespace {

class ModelReader {
 public:
  ModelReader(const JsonField& field, size_t num_tokens, TokenizerSpec& spec)
      : field_(field), spec_(spec), model_(spec.model) {
    ids_.reserve(num_tokens);
    for (size_t i = 0; i < num_tokens; ++i) {
      ids_.emplace(spec.vocabulary.tokens[i], static_cast<TokenId>(i));
    }
  }

  void read() {
    check_options();
    if (model_.is_byte_level) {
      read_letters();
    } else {
      read_characters();
    }
    read_unknown();
    read_merges();
    if (field_.flag_or("ignore_merges", false)) read_whole_pieces();
  }

 private:
  TokenId find(const std::string& token) const {
    const auto it = ids_.find(token);
    return it == ids_.end() ? -1 : it->second;
  }

  // Typed text never becomes a control token.
  bool is_control(TokenId id) const { return spec_.vocabulary.kinds[id] == TokenKind::kControl; }
  TokenId find_text(const std::string& token) const {
    const TokenId id = find(token);
    return id >= 0 && is_control(id) ? -1 : id;
  }

  void check_options() const {
    field_.allow_only({"type", "dropout", "unk_token", "continuing_subword_prefix",
                       "end_of_word_suffix", "fuse_unk", "byte_fallback", "ignore_merges", "vocab",
                       "merges"});
    if (const auto dropout = field_.find("dropout")) {
      const double value = core::to_double(dropout->value(), dropout->where());
      if (value != 0) dropout->refuse("no dropout", core::join(value));
    }
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      const auto affix = field_.find(key);
      if (affix && !affix->text().empty()) affix->refuse("none", quote(affix->text()));
    }
  }

  void read_letters() {
    bool has_all = true;
    for (size_t byte = 0; byte < 256; ++byte) {
      std::string letter;
      append_utf8(letter, byte_to_letter(static_cast<uint8_t>(byte)));
      model_.byte_ids[byte] = find_text(letter);
      has_all = has_all && find(letter) >= 0;
    }
    if (field_.flag_or("byte_fallback", false) && !has_all) {
      field_.at("byte_fallback").refuse("false where bytes have no token of their own", "true");
    }
  }

  void read_characters() {
    for (const auto& [token, id] : ids_) {
      if (token.empty() || is_control(id)) continue;
      const Utf8Step step = utf8_step(token);
      if (step.size == token.size()) model_.char_ids.emplace(step.code, id);
    }
    if (!field_.flag_or("byte_fallback", false)) return;
    constexpr char kDigits[] = "0123456789ABCDEF";
    for (size_t byte = 0; byte < 256; ++byte) {
      model_.byte_ids[byte] =
          find_text({'<', '0', 'x', kDigits[byte / 16], kDigits[byte % 16], '>'});
    }
  }

  void read_unknown() {
    model_.fuses_unknown = field_.flag_or("fuse_unk", false);
    const auto name = field_.find("unk_token");
    if (!name) return;
    model_.unknown = find(name->text());
    const bool is_needed =
        !model_.is_byte_level || std::count(model_.byte_ids.begin(), model_.byte_ids.end(), -1) > 0;
    check<FormatError>(model_.unknown >= 0 || !is_needed, name->where(),
                       ": expected a token of the vocabulary, got ", quote(name->text()),
                       "; the file is damaged");
  }

  void read_merges() {
    const JsonField merges = field_.at("merges");
    const size_t count = merges.list().size();
    check<FormatError>(count <= std::numeric_limits<int32_t>::max(), merges.where(),
                       ": expected at most 2147483647, got ", count, "; the file is damaged");
    model_.merges = MergeTable(count);
    int32_t rank = 0;
    for (const JsonField& merge : merges.list()) {
      // A first line of that kind comes from a merges.txt.
      if (merge.is_text() && merge.text().starts_with("#version")) continue;
      add_merge(merge, rank++);
    }
  }

  void add_merge(const JsonField& merge, int32_t rank) {
    const auto [left, right] = pair_of(merge);
    const auto id_of = [&](const std::string& token) {
      const TokenId id = find(token);
      check<FormatError>(id >= 0, merge.where(),
                         ": expected tokens of the vocabulary, got unknown token ", quote(token),
                         "; the file is damaged");
      return id;
    };
    const TokenId left_id = id_of(left), right_id = id_of(right), result = id_of(left + right);
    if (!is_control(result)) model_.merges.set(left_id, right_id, {rank, result});
  }

  static std::pair<std::string, std::string> pair_of(const JsonField& merge) {
    if (merge.is_list()) {
      const std::vector<JsonField> parts = merge.list();
      check<FormatError>(parts.size() == 2, merge.where(), ": expected two tokens, got ",
                         parts.size(), "; the file is damaged");
      return {parts[0].text(), parts[1].text()};
    }
    const std::string text = merge.text();
    const size_t space = text.find(' ');
    check<FormatError>(space != std::string::npos && text.find(' ', space + 1) == std::string::npos,
                       merge.where(), ": expected \"left right\", got ", quote(text),
                       "; the file is damaged");
    return {text.substr(0, space), text.substr(space + 1)};
  }

  void read_whole_pieces() {
    for (const auto& [token, id] : ids_) {
      if (is_control(id) || token.empty()) continue;
      if (!model_.is_byte_level) {
        model_.whole_pieces.emplace(token, id);
      } else if (const auto bytes = letters_to_bytes(token)) {
        model_.whole_pieces.emplace(*bytes, id);
      }
    }
  }

  const JsonField& field_;
  TokenizerSpec& spec_;
  BpeModel& model_;
  TokenIds ids_;
};

}  // namespace

void read_model(const JsonField& field, size_t num_tokens, TokenizerSpec& spec) {
  ModelReader(field, num_tokens, spec).read();
}

}  // namespace weft::text
