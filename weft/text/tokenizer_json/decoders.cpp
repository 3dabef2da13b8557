#include "weft/core/error.h"
#include "weft/text/bpe/byte_alphabet.h"
#include "weft/text/tokenizer_json/parts.h"

namespace weft::text {
namespace {

// The steps of a decoder of tokens over characters, in the only order that published models have.
enum class Stage { kReplace, kByteFallback, kFuse, kStrip, kDone };

void read_replace(const JsonField& field, DecoderPart& part) {
  field.allow_only({"type", "pattern", "content"});
  const JsonField pattern = field.at("pattern");
  pattern.allow_only({"String"});
  const std::string text = pattern.at("String").text();
  if (text.empty()) pattern.refuse("a text", "an empty one");
  part.replacements.emplace_back(text, field.at("content").short_text());
}

void read_strip(const JsonField& field, DecoderPart& part) {
  field.allow_only({"type", "content", "start", "stop"});
  const int64_t start = field.at("start").integer(), stop = field.at("stop").integer();
  if (field.at("content").text() != " ") field.at("content").refuse("\" \"", "another text");
  if (stop != 0) field.at("stop").refuse("0", core::join(stop));
  if (start < 0 || start > 1000) field.at("start").refuse("0 to 1000", core::join(start));
  part.num_stripped = static_cast<size_t>(start);
}

void read_metaspace(const JsonField& field, DecoderPart& part) {
  field.allow_only(
      {"type", "replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
  const std::string mark = field.at("replacement").text();
  if (mark.empty()) field.at("replacement").refuse("a text", "an empty one");
  part.replacements.emplace_back(mark, " ");
  const bool has_prefix = field.flag_or("add_prefix_space", true);
  if (field.text_or("prepend_scheme", has_prefix ? "always" : "never") != "never") {
    part.stripped_from_first = mark;
  }
}

Stage stage_of(const JsonField& step) {
  const JsonField type = step.at("type");
  const std::string name = type.text();
  if (name == "Replace") return Stage::kReplace;
  if (name == "ByteFallback") return Stage::kByteFallback;
  if (name == "Fuse") return Stage::kFuse;
  if (name == "Strip") return Stage::kStrip;
  if (name == "ByteLevel" || name == "Metaspace") {
    type.refuse("ByteLevel or Metaspace as the only step", "several steps");
  }
  type.refuse("one of Sequence, ByteLevel, ByteFallback, Fuse, Metaspace, Replace, Strip",
              core::quote(name));
}

void read_step(const JsonField& step, Stage stage, DecoderPart& part) {
  switch (stage) {
    case Stage::kReplace:
      read_replace(step, part);
      return;
    case Stage::kStrip:
      read_strip(step, part);
      return;
    default:
      step.allow_only({"type"});
      part.has_byte_fallback = part.has_byte_fallback || stage == Stage::kByteFallback;
  }
}

}  // namespace

std::string DecoderPart::bytes(const std::string& token, bool is_added) const {
  if (is_byte_level) return is_added ? token : letters_to_bytes(token).value_or(token);
  std::string text = token;
  for (const auto& [from, to] : replacements) {
    text = replace_step(literal_finder(from), to)(std::move(text));
  }
  const int byte = has_byte_fallback ? byte_of_hex_token(text) : -1;
  return byte >= 0 ? std::string(1, static_cast<char>(byte)) : text;
}

DecoderPart read_decoder(const JsonField& field) {
  DecoderPart part;
  const std::vector<JsonField> steps = steps_of(field, "decoders");
  if (steps.empty()) field.refuse("a decoder", "none");
  const std::string first = steps[0].at("type").text();
  if (steps.size() == 1 && first == "ByteLevel") {
    steps[0].allow_only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    part.is_byte_level = true;
    return part;
  }
  if (steps.size() == 1 && first == "Metaspace") {
    read_metaspace(steps[0], part);
    return part;
  }
  Stage last = Stage::kReplace;
  for (const JsonField& step : steps) {
    const Stage stage = stage_of(step);
    const bool is_repeated = stage == last && stage != Stage::kReplace;
    // Strip works on single tokens unless they are fused before.
    if (stage < last || is_repeated || (stage == Stage::kStrip && last != Stage::kFuse)) {
      step.refuse("the order Replace, ByteFallback, Fuse, Strip",
                  core::quote(step.at("type").text()));
    }
    read_step(step, stage, part);
    last = stage;
  }
  return part;
}

}  // namespace weft::text
