#include "weft/core/error.h"
#include "weft/text/tokenizer_json/parts.h"

namespace weft::text {
namespace {

TokenId read_id(const JsonField& field, const TokenizerSpec& spec) {
  const int64_t id = field.integer();
  const size_t count = spec.vocabulary.tokens.size();
  core::check<core::FormatError>(id >= 0 && id < static_cast<int64_t>(count), field.where(),
                                 ": expected an id below ", count, ", got ", id,
                                 "; the file is damaged");
  return static_cast<TokenId>(id);
}

// Outer steps go around what inner ones made.
void put_around(TokenizerSpec& spec, const std::vector<TokenId>& before,
                const std::vector<TokenId>& behind) {
  spec.prefix.insert(spec.prefix.begin(), before.begin(), before.end());
  spec.suffix.insert(spec.suffix.end(), behind.begin(), behind.end());
}

void read_template(const JsonField& field, TokenizerSpec& spec) {
  // `pair` is for two texts, which no caller has.
  field.allow_only({"type", "single", "pair", "special_tokens"});
  std::vector<TokenId> before, behind;
  bool has_text = false;
  for (const JsonField& piece : field.at("single").list()) {
    piece.allow_only({"SpecialToken", "Sequence"});
    if (const auto sequence = piece.find("Sequence")) {
      if (has_text || sequence->at("id").text() != "A") piece.refuse("one sequence A", "another");
      has_text = true;
      continue;
    }
    const std::string name = piece.at("SpecialToken").at("id").text();
    const JsonField ids = field.at("special_tokens").at(name).at("ids");
    for (const JsonField& id : ids.list()) {
      (has_text ? behind : before).push_back(read_id(id, spec));
    }
  }
  if (!has_text) field.at("single").refuse("a sequence A", "none");
  put_around(spec, before, behind);
}

// "sep" and "cls" are [text, id].
void read_bert(const JsonField& field, TokenizerSpec& spec) {
  field.allow_only({"type", "sep", "cls", "trim_offsets", "add_prefix_space"});
  const auto id_of = [&](const char* key) {
    const std::vector<JsonField> parts = field.at(key).list();
    core::check<core::FormatError>(parts.size() == 2, field.at(key).where(),
                                   ": expected a token and its id, got ", parts.size(),
                                   " values; the file is damaged");
    return read_id(parts[1], spec);
  };
  put_around(spec, {id_of("cls")}, {id_of("sep")});
}

}  // namespace

void read_post_processor(const JsonField& field, TokenizerSpec& spec) {
  for (const JsonField& step : steps_of(field, "processors")) {
    const JsonField type = step.at("type");
    const std::string name = type.text();
    if (name == "TemplateProcessing") {
      read_template(step, spec);
    } else if (name == "BertProcessing" || name == "RobertaProcessing") {
      read_bert(step, spec);
    } else if (name == "ByteLevel") {
      // Only changes offsets.
      step.allow_only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    } else {
      type.refuse(
          "one of Sequence, BertProcessing, ByteLevel, RobertaProcessing, TemplateProcessing",
          core::quote(name));
    }
  }
}

}  // namespace weft::text
