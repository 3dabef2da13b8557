#include <algorithm>

#include "weft/core/error.h"
#include "weft/text/tokenizer_json/parts.h"

namespace weft::text {

using core::check;
using core::FormatError;

namespace {

AddedToken read_added_token(const JsonField& field) {
  field.allow_only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
  AddedToken token;
  token.content = field.at("content").text();
  const int64_t id = field.at("id").integer();
  check<FormatError>(!token.content.empty(), field.where(),
                     ".content: expected a text, got an empty one; the file is damaged");
  check<FormatError>(id >= 0 && id <= (1 << 30), field.where(),
                     ".id: expected 0 to 1073741824, got ", id, "; the file is damaged");
  token.id = static_cast<TokenId>(id);
  token.is_special = field.at("special").flag();
  token.is_normalized = field.at("normalized").flag();
  token.strips_left = field.at("lstrip").flag();
  token.strips_right = field.at("rstrip").flag();
  token.is_single_word = field.at("single_word").flag();
  return token;
}

// Gives ids as Hugging Face does: a token of the model keeps its own, any other gets the next.
class IdGiver {
 public:
  explicit IdGiver(const TokenIds& ids) : ids_(ids), next_(static_cast<TokenId>(ids.size())) {}

  TokenId give(const std::string& content) {
    const auto it = ids_.find(content);
    return it != ids_.end() ? it->second : next_++;
  }

 private:
  const TokenIds& ids_;
  TokenId next_;
};

}  // namespace

std::vector<AddedToken> read_added_tokens(const JsonField& field, const TokenIds& ids,
                                          const TokenizerChanges& changes) {
  std::vector<AddedToken> tokens;
  TokenIds places;
  IdGiver giver(ids);
  const auto add = [&](AddedToken token, const std::string& where) {
    check<FormatError>(token.content.size() <= kMaxAddedToken, where, ": ",
                       core::quote(token.content), ": expected at most ", kMaxAddedToken,
                       " bytes, got ", token.content.size(), "; the file is damaged");
    const TokenId id = giver.give(token.content);
    check<FormatError>(token.id < 0 || token.id == id, where, ".id: expected ", id, " for ",
                       core::quote(token.content), ", as Hugging Face gives it, got ", token.id,
                       "; number added tokens behind the vocabulary without holes");
    token.id = id;
    token.is_guarded = token.is_special;
    places.emplace(token.content, static_cast<TokenId>(tokens.size()));
    tokens.push_back(std::move(token));
  };
  for (const JsonField& member : field.is_null() ? std::vector<JsonField>() : field.list()) {
    AddedToken token = read_added_token(member);
    check<FormatError>(!places.contains(token.content), member.where(),
                       ".content: expected a spelling of its own, got ", core::quote(token.content),
                       " again; the file is damaged");
    add(std::move(token), member.where());
  }
  for (const AddedToken& change : changes.added) {
    const auto it = places.find(change.content);
    if (it == places.end()) {
      add(change, field.where());
      continue;
    }
    AddedToken& token = tokens[it->second];
    check<FormatError>(change.id < 0 || change.id == token.id, field.where(), ": ",
                       core::quote(token.content), ": expected id ", token.id, ", got ", change.id,
                       " in tokenizer_config.json; the files are of two models");
    if (change.keeps_options) continue;
    const TokenId id = token.id;
    token = change;
    token.id = id;
    token.is_guarded = token.is_special;
  }
  return tokens;
}

}  // namespace weft::text
