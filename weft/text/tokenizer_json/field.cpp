#include "weft/text/tokenizer_json/field.h"

#include <algorithm>

#include "weft/core/error.h"

namespace weft::text {

JsonField JsonField::at(const std::string& key) const {
  return {core::require(*value_, key, where_), core::join(where_, ".", key)};
}

std::optional<JsonField> JsonField::find(const std::string& key) const {
  const core::Json* member = core::find(*value_, key, where_);
  if (member == nullptr || member->is_null()) return std::nullopt;
  return JsonField(*member, core::join(where_, ".", key));
}

std::vector<JsonField> JsonField::list() const {
  core::check<core::FormatError>(value_->is_array(), where_, ": expected a list, got ",
                                 value_->type_name(), "; the file is damaged");
  std::vector<JsonField> members;
  for (const core::Json& member : *value_) {
    members.emplace_back(member, core::join(where_, "[", members.size(), "]"));
  }
  return members;
}

void JsonField::allow_only(std::initializer_list<std::string_view> keys) const {
  core::check<core::FormatError>(value_->is_object(), where_, ": expected an object, got ",
                                 value_->type_name(), "; the file is damaged");
  for (const auto& [key, member] : value_->items()) {
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
    std::string known;
    for (const std::string_view name : keys)
      known += (known.empty() ? "" : ", ") + std::string(name);
    refuse(core::join("only the keys ", known), core::quote(key));
  }
}

std::string JsonField::short_text() const {
  constexpr size_t kMaxBytes = 32;
  std::string bytes = text();
  if (bytes.size() > kMaxBytes) {
    refuse(core::join("a text of at most ", kMaxBytes, " bytes"), core::quote(bytes));
  }
  return bytes;
}

std::string JsonField::text_or(const std::string& key, const std::string& other) const {
  const auto member = find(key);
  return member ? member->text() : other;
}

bool JsonField::flag_or(const std::string& key, bool other) const {
  const auto member = find(key);
  return member ? member->flag() : other;
}

void JsonField::refuse(const std::string& expected, const std::string& got) const {
  core::fail<core::ConfigError>(where_, ": expected ", expected, ", got ", got,
                                "; weft would give other ids than the model was trained on, use "
                                "a model with a supported tokenizer");
}

namespace {

void add_steps(const JsonField& field, const std::string& list_key, std::vector<JsonField>& out) {
  // Published files have at most ten; each step may make a text longer.
  constexpr size_t kMaxSteps = 32;
  if (field.is_null()) return;
  const JsonField type = field.at("type");
  if (type.text() != "Sequence") {
    out.push_back(field);
    if (out.size() > kMaxSteps) field.refuse("at most 32 steps", "more");
    return;
  }
  field.allow_only({"type", list_key});
  for (const JsonField& member : field.at(list_key).list()) add_steps(member, list_key, out);
}

}  // namespace

std::vector<JsonField> steps_of(const JsonField& field, const std::string& list_key) {
  std::vector<JsonField> out;
  add_steps(field, list_key, out);
  return out;
}

}  // namespace weft::text
