#include "weft/core/error.h"
#include "weft/text/tokenizer/pre_tokenizer.h"
#include "weft/text/tokenizer_json/parts.h"
#include "weft/text/unicode/unicode.h"
#include "weft/text/unicode/utf8.h"

namespace weft::text {
namespace {

struct Behavior {
  std::string_view name;
  SplitBehavior value;
};
constexpr Behavior kBehaviors[] = {{"Removed", SplitBehavior::kRemoved},
                                   {"Isolated", SplitBehavior::kIsolated},
                                   {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
                                   {"MergedWithNext", SplitBehavior::kMergedWithNext},
                                   {"Contiguous", SplitBehavior::kContiguous}};

SplitBehavior read_behavior(const JsonField& field) {
  const std::string name = field.text();
  for (const Behavior& behavior : kBehaviors) {
    if (behavior.name == name) return behavior.value;
  }
  field.refuse("Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous",
               core::quote(name));
}

// A pattern that a scanner knows matches everything, so it is only that fast where both give the
// same pieces: nothing lies between its matches.
void add_split(const JsonField& field, PreTokenizerPart& part) {
  field.allow_only({"type", "pattern", "behavior", "invert"});
  const SplitBehavior behavior = read_behavior(field.at("behavior"));
  const bool is_inverted = field.flag_or("invert", false);
  const auto regex = field.at("pattern").find("Regex");
  const PreTokenizer* known = regex ? find_pattern(regex->text()) : nullptr;
  const bool keeps_all = (behavior == SplitBehavior::kIsolated && !is_inverted) ||
                         (behavior == SplitBehavior::kRemoved && is_inverted);
  if (known != nullptr && keeps_all) {
    part.steps.push_back(family_step(*known));
  } else {
    part.steps.push_back(split_step(read_pattern(field.at("pattern")), behavior, is_inverted));
  }
}

void add_byte_level(const JsonField& field, PreTokenizerPart& part) {
  field.allow_only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  field.flag_or("trim_offsets", true);  // changes no ids
  if (field.at("add_prefix_space").flag()) part.steps.push_back(prefix_step(" ", false));
  if (field.flag_or("use_regex", true)) part.steps.push_back(family_step(PreTokenizer{}));
  part.is_byte_level = true;
}

void add_digits(const JsonField& field, PreTokenizerPart& part) {
  field.allow_only({"type", "individual_digits"});
  const bool is_single = field.at("individual_digits").flag();
  part.steps.push_back(split_step(class_finder(kNumeric),
                                  is_single ? SplitBehavior::kIsolated : SplitBehavior::kContiguous,
                                  false));
}

void add_punctuation(const JsonField& field, PreTokenizerPart& part) {
  field.allow_only({"type", "behavior"});
  const auto behavior = field.find("behavior");
  part.steps.push_back(split_step(class_finder(kPunctuation),
                                  behavior ? read_behavior(*behavior) : SplitBehavior::kIsolated,
                                  false));
}

// Older files have `add_prefix_space` for `prepend_scheme`, and `str_rep` again for `replacement`.
std::string scheme_of(const JsonField& field) {
  const auto scheme = field.find("prepend_scheme");
  const auto legacy = field.find("add_prefix_space");
  const std::string name =
      scheme ? scheme->text() : (!legacy || legacy->flag() ? "always" : "never");
  if (name != "always" && name != "first" && name != "never") {
    scheme->refuse("always, first or never", core::quote(name));
  }
  if (legacy && legacy->flag() != (name != "never")) {
    legacy->refuse("what fits prepend_scheme", legacy->flag() ? "true" : "false");
  }
  return name;
}

void add_metaspace(const JsonField& field, PreTokenizerPart& part) {
  field.allow_only(
      {"type", "replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
  const std::string mark = field.at("replacement").text(), scheme = scheme_of(field);
  if (utf8_length(mark) != 1 || field.text_or("str_rep", mark) != mark) {
    field.refuse("a replacement of one character", core::quote(mark));
  }
  const bool only_first = scheme == "first";
  if (only_first && !part.steps.empty()) {
    field.refuse("Metaspace with prepend_scheme first as the first step", "one before it");
  }
  part.steps.push_back(replace_in_pieces_step(literal_finder(" "), mark));
  if (scheme != "never") part.steps.push_back(prefix_step(mark, only_first));
  if (field.flag_or("split", true)) {
    part.steps.push_back(split_step(literal_finder(mark), SplitBehavior::kMergedWithNext, false));
  }
}

struct PreTokenizerRow {
  std::string_view type;
  void (*add)(const JsonField&, PreTokenizerPart&);
};
constexpr PreTokenizerRow kPreTokenizers[] = {{"ByteLevel", add_byte_level},
                                              {"Digits", add_digits},
                                              {"Metaspace", add_metaspace},
                                              {"Punctuation", add_punctuation},
                                              {"Split", add_split}};

void add_step(const JsonField& step, PreTokenizerPart& part) {
  const std::string type = step.at("type").text();
  if (part.is_byte_level) step.refuse("ByteLevel as the last step", core::quote(type));
  std::string known = "Sequence";
  for (const PreTokenizerRow& row : kPreTokenizers) {
    if (row.type == type) {
      row.add(step, part);
      return;
    }
    known += core::join(", ", row.type);
  }
  step.at("type").refuse(core::join("one of ", known), core::quote(type));
}

}  // namespace

PreTokenizerPart read_pre_tokenizer(const JsonField& field, const TokenizerChanges& changes) {
  PreTokenizerPart part;
  const bool is_byte_level_alone = field.is_object() && field.text_or("type", "") == "ByteLevel";
  if (is_byte_level_alone && changes.add_prefix_space) {
    core::Json changed = field.value();
    changed["add_prefix_space"] = *changes.add_prefix_space;
    add_step({changed, field.where()}, part);
    return part;
  }
  for (const JsonField& step : steps_of(field, "pretokenizers")) add_step(step, part);
  return part;
}

}  // namespace weft::text
