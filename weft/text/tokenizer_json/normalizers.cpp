#include "weft/core/error.h"
#include "weft/text/tokenizer/normalize.h"
#include "weft/text/tokenizer_json/parts.h"

namespace weft::text {
namespace {

template <std::string (*Normalize)(std::string_view)>
TextStep read_form(const JsonField& field) {
  field.allow_only({"type"});
  return [](const std::string& text) { return Normalize(text); };
}

TextStep read_prepend(const JsonField& field) {
  field.allow_only({"type", "prepend"});
  return prepend_step(field.at("prepend").short_text());
}

TextStep read_replace(const JsonField& field) {
  field.allow_only({"type", "pattern", "content"});
  return replace_step(read_pattern(field.at("pattern")), field.at("content").short_text());
}

TextStep read_strip(const JsonField& field) {
  field.allow_only({"type", "strip_left", "strip_right"});
  return strip_step(field.at("strip_left").flag(), field.at("strip_right").flag());
}

struct NormalizerRow {
  std::string_view type;
  TextStep (*read)(const JsonField&);
};
constexpr NormalizerRow kNormalizers[] = {{"NFC", read_form<normalize_nfc>},
                                          {"NFD", read_form<normalize_nfd>},
                                          {"NFKC", read_form<normalize_nfkc>},
                                          {"NFKD", read_form<normalize_nfkd>},
                                          {"Prepend", read_prepend},
                                          {"Replace", read_replace},
                                          {"Strip", read_strip}};

}  // namespace

TextFinder read_pattern(const JsonField& field) {
  field.allow_only({"String", "Regex"});
  if (const auto regex = field.find("Regex")) {
    return regex_finder(Regex::parse(regex->text(), regex->where()));
  }
  const JsonField literal = field.at("String");
  if (literal.text().empty()) literal.refuse("a text", "an empty one");
  return literal_finder(literal.text());
}

std::vector<TextStep> read_normalizer(const JsonField& field) {
  std::vector<TextStep> out;
  for (const JsonField& step : steps_of(field, "normalizers")) {
    const std::string type = step.at("type").text();
    const NormalizerRow* row = nullptr;
    std::string known = "Sequence";
    for (const NormalizerRow& candidate : kNormalizers) {
      if (candidate.type == type) row = &candidate;
      known += core::join(", ", candidate.type);
    }
    if (row == nullptr) step.at("type").refuse(core::join("one of ", known), core::quote(type));
    out.push_back(row->read(step));
  }
  return out;
}

}  // namespace weft::text
