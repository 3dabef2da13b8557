#include "weft/text/tokenizer_json/tiktoken_model.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

#include "weft/core/error.h"
#include "weft/text/bpe/byte_alphabet.h"
#include "weft/text/bpe/token_index.h"
#include "weft/text/tokenizer/pre_tokenizer.h"
#include "weft/text/unicode/utf8.h"

namespace weft::text {
namespace {

using core::check;
using core::FormatError;
using core::quote;

constexpr const char* kFamily = "kimi-k2";
// So many ids behind the ranks are special tokens, whether tokenizer_config.json names them or not.
// The script has two more, of which no model has rows.
constexpr size_t kNumSpecial = 256;
// Each way to cut a token is looked up, so its length bounds the work; published ones have 128.
constexpr size_t kMaxTokenBytes = 1024;

int base64_digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

std::optional<std::string> from_base64(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0) return std::nullopt;
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  text.remove_suffix(padding);
  std::string bytes;
  uint32_t held = 0;
  int num_bits = 0;
  for (const char c : text) {
    const int digit = base64_digit(c);
    if (digit < 0) return std::nullopt;
    held = held << 6 | static_cast<uint32_t>(digit);
    num_bits += 6;
    if (num_bits < 8) continue;
    num_bits -= 8;
    bytes += static_cast<char>(held >> num_bits & 255);
  }
  return bytes;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    if (end > 0) lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

// The bytes of the tokens by rank.
std::vector<std::string> read_ranks(std::string_view text, const std::string& where) {
  const std::vector<std::string_view> lines = lines_of(text);
  check<FormatError>(!lines.empty() && lines.size() < size_t{1} << 30, where,
                     ": expected 1 to 1073741823 tokens, got ", lines.size(),
                     "; the file is damaged");
  std::vector<std::string> tokens(lines.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string_view line = lines[i];
    const size_t space = std::min(line.find(' '), line.size());
    auto bytes = from_base64(line.substr(0, space));
    const std::string_view number = line.substr(std::min(space + 1, line.size()));
    size_t rank = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), rank);
    const bool is_shaped = bytes && error == std::errc() && end == number.data() + number.size();
    check<FormatError>(is_shaped && bytes->size() <= kMaxTokenBytes, where, ": token ", i,
                       ": expected up to ", kMaxTokenBytes, " bytes in base64 and a rank, got ",
                       quote(std::string(line.substr(0, 80))), "; the file is damaged");
    check<FormatError>(rank < tokens.size() && tokens[rank].empty(), where, ": token ", i,
                       ": expected a rank of its own below ", tokens.size(),
                       ", the number of tokens, got ", rank, "; the file is damaged");
    tokens[rank] = *std::move(bytes);
  }
  return tokens;
}

std::string letters_of(std::string_view bytes) {
  std::string letters;
  for (const char byte : bytes) append_utf8(letters, byte_to_letter(static_cast<uint8_t>(byte)));
  return letters;
}

TokenIndex index_bytes(const std::vector<std::string>& tokens, const std::string& where) {
  TokenIndex ids(tokens.size());
  for (size_t rank = 0; rank < tokens.size(); ++rank) {
    const TokenId before = ids.add(tokens[rank], static_cast<TokenId>(rank));
    check<FormatError>(before < 0, where, ": rank ", rank,
                       ": expected a token of its own, got that of rank ", before,
                       "; the file is damaged");
  }
  return ids;
}

// Any two tokens merge whose bytes together are one, best rank first.
void add_merges_of_ranks(const TokenIndex& ids, TokenizerSpec& spec) {
  struct Pair {
    TokenId left, right, whole;
  };
  std::vector<Pair> pairs;
  for (size_t rank = 0; rank < spec.bytes.size(); ++rank) {
    const std::string_view token = spec.bytes[rank];
    for (size_t cut = 1; cut < token.size(); ++cut) {
      const TokenId left = ids.find(token.substr(0, cut)), right = ids.find(token.substr(cut));
      if (left >= 0 && right >= 0) pairs.push_back({left, right, static_cast<TokenId>(rank)});
    }
  }
  spec.model.merges = MergeTable(pairs.size());
  for (const Pair& pair : pairs) {
    spec.model.merges.set(pair.left, pair.right, {pair.whole, pair.whole});
  }
}

void add_model(const std::string& where, TokenizerSpec& spec) {
  const TokenIndex ids = index_bytes(spec.bytes, where);
  for (size_t byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    const TokenId id = ids.find({&text, 1});
    check<FormatError>(id >= 0, where, ": expected a token of each byte, got none of ", byte,
                       "; the file is damaged");
    spec.model.byte_ids[byte] = id;
  }
  add_merges_of_ranks(ids, spec);
  for (size_t rank = 0; rank < spec.bytes.size(); ++rank) {
    spec.model.whole_pieces.emplace(spec.bytes[rank], static_cast<TokenId>(rank));
  }
}

// Named by id, or by their names alone, which must be those of others.
class SpecialTokens {
 public:
  SpecialTokens(size_t first, const std::string& where) : first_(first), where_(where) {}

  void name(const AddedToken& token) {
    if (token.id < 0) {
      named_.push_back(token.content);
      return;
    }
    const auto id = static_cast<size_t>(token.id);
    check<core::ConfigError>(id >= first_ && id < first_ + kNumSpecial, where_, ": special token ",
                             quote(token.content), ": expected an id of ", first_, " to ",
                             first_ + kNumSpecial - 1, ", got ", id,
                             "; tokenizer_config.json is of another tiktoken.model");
    check<FormatError>(!token.content.empty() && token.content.size() <= kMaxAddedToken, where_,
                       ": special token ", id, ": expected 1 to ", kMaxAddedToken, " bytes, got ",
                       token.content.size(), "; the file is damaged");
    by_id_[id] = token;
  }

  void add_to(TokenizerSpec& spec) const {
    for (size_t id = first_; id < first_ + kNumSpecial; ++id) add(id, spec);
    for (const std::string& name : named_) {
      const auto is_same = [&](const AddedToken& token) { return token.content == name; };
      check<core::ConfigError>(std::any_of(spec.added.begin(), spec.added.end(), is_same), where_,
                               ": special token ", quote(name),
                               ": expected one of added_tokens_decoder, got no such id; "
                               "tokenizer_config.json is of another tiktoken.model");
    }
  }

 private:
  void add(size_t id, TokenizerSpec& spec) const {
    AddedToken token;
    const auto it = by_id_.find(id);
    if (it != by_id_.end()) {
      token.content = it->second.content;
      token.is_special = it->second.is_special;
    } else {
      token.content = core::join("<|reserved_token_", id, "|>");
      token.is_special = true;
    }
    token.id = static_cast<TokenId>(id);
    token.is_guarded = true;
    spec.vocabulary.tokens.push_back(token.content);
    spec.vocabulary.kinds.push_back(token.is_special ? TokenKind::kControl
                                                     : TokenKind::kUserDefined);
    spec.bytes.push_back(token.content);
    spec.added.push_back(std::move(token));
  }

  size_t first_;
  const std::string& where_;
  std::map<size_t, AddedToken> by_id_;
  std::vector<std::string> named_;
};

// The file doesn't say by what expression texts are cut: the folder's script does.
void check_script(const JsonField& config) {
  const auto map = config.is_null() ? std::nullopt : config.find("auto_map");
  const auto field = map ? map->find("AutoTokenizer") : std::nullopt;
  std::string name;
  if (field && field->is_text()) name = field->text();
  if (field && field->is_list() && !field->list().empty() && field->list()[0].is_text()) {
    name = field->list()[0].text();
  }
  // transformers writes the repository before it from which it has fetched the script.
  const size_t end_of_repository = name.rfind("--");
  if (end_of_repository != std::string::npos) name.erase(0, end_of_repository + 2);
  if (name == "tokenization_kimi.TikTokenTokenizer") return;
  // Moonlight's script has the same expression and ids under an older name.
  if (name == "tokenization_moonshot.TikTokenTokenizer") return;
  JsonField(config.value(), config.where() + ".auto_map.AutoTokenizer")
      .refuse("\"tokenization_kimi.TikTokenTokenizer\" beside a tiktoken.model",
              name.empty() ? "none" : quote(name));
}

}  // namespace

TokenizerSpec parse_tiktoken_model(std::string_view text, const std::string& where,
                                   const JsonField& config, const TokenizerChanges& changes) {
  check_script(config);
  TokenizerSpec spec;
  spec.bytes = read_ranks(text, where);
  add_model(where, spec);
  spec.vocabulary.model = "gpt2";
  spec.vocabulary.pre_tokenizer = kFamily;
  for (const std::string& bytes : spec.bytes) {
    spec.vocabulary.tokens.push_back(letters_of(bytes));
    spec.vocabulary.kinds.push_back(TokenKind::kNormal);
  }
  spec.pre_tokenizer = family_steps(find_pre_tokenizer(kFamily, where));
  SpecialTokens special(spec.bytes.size(), where);
  for (const AddedToken& token : changes.added) special.name(token);
  special.add_to(spec);
  return spec;
}

namespace {

// The two tokens of which ranks below `whole` make its bytes; none where they make more.
std::vector<TokenId> halves(std::string_view bytes, TokenId whole, const TokenIndex& ids) {
  std::vector<std::string_view> parts;
  for (size_t i = 0; i < bytes.size(); ++i) parts.push_back(bytes.substr(i, 1));
  while (parts.size() > 2) {
    size_t best = 0;
    TokenId best_rank = whole;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const TokenId rank = ids.find({parts[i].data(), parts[i].size() + parts[i + 1].size()});
      if (rank < 0 || rank >= best_rank) continue;
      best = i;
      best_rank = rank;
    }
    if (best_rank == whole) return {};
    parts[best] = {parts[best].data(), parts[best].size() + parts[best + 1].size()};
    parts.erase(parts.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
  return {ids.find(parts[0]), ids.find(parts[1])};
}

}  // namespace

std::vector<std::string> tiktoken_merges(const Vocabulary& vocabulary) {
  std::vector<std::string> bytes;
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    if (vocabulary.kinds[i] != TokenKind::kNormal) break;
    bytes.push_back(letters_to_bytes(vocabulary.tokens[i]).value());
  }
  const TokenIndex ids = index_bytes(bytes, "text.tiktoken_merges");
  std::vector<std::string> merges;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i].size() < 2) continue;
    const std::vector<TokenId> two = halves(bytes[i], static_cast<TokenId>(i), ids);
    if (two.empty()) continue;
    merges.push_back(vocabulary.tokens[static_cast<size_t>(two[0])] + " " +
                     vocabulary.tokens[static_cast<size_t>(two[1])]);
  }
  return merges;
}

}  // namespace weft::text
