#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "weft/core/error.h"
#include "weft/core/json.h"
#include "weft/serve/chat/harmony_answer.h"
#include "weft/serve/chat/tool_family.h"
#include "weft/serve/chat/tool_format.h"

// Structural tags of xgrammar, as texts: parsed objects would lose the order of a schema's members.
namespace weft::serve {
namespace {

// What stands before and behind a call's arguments.
struct Frame {
  std::string begin, end;
};

// Of the families whose calls are told by no special token here.
Frame frame_of(ToolFormat format, const std::string& name) {
  const std::string quoted = core::dump_json(name);
  switch (format) {
    case ToolFormat::kHermes:
      return {"<tool_call>\n{\"name\": " + quoted + ", \"arguments\": ", "}\n</tool_call>"};
    case ToolFormat::kLlama:
      return {"{\"name\": " + quoted + ", \"parameters\": ", "}"};
    default:
      return {"[{\"name\": " + quoted + ", \"arguments\": ", "}]"};
  }
}

constexpr const char* kAnyObject = R"({"type": "object", "additionalProperties": true})";

// Arguments that need not keep to their schema are any object.
std::string schema_of(const Tool& tool, bool is_held) {
  if (!is_held) return kAnyObject;
  return tool.parameters.empty() ? R"({"type": "object"})" : tool.parameters;
}

std::string schema_format(const std::string& schema, std::string_view style = "json") {
  return core::join(R"({"type": "json_schema", "style": ")", style, R"(", "max_whitespace_cnt": )",
                    grammar::kMostSpaces, R"(, "json_schema": )", schema, "}");
}

std::string tag_of(ToolFormat format, const Tool& tool, bool is_held) {
  const Frame frame = frame_of(format, tool.name);
  return core::join(R"({"type": "tag", "begin": )", core::dump_json(frame.begin),
                    R"(, "content": )", schema_format(schema_of(tool, is_held)), R"(, "end": )",
                    core::dump_json(frame.end), "}");
}

std::string joined(const std::vector<std::string>& parts) {
  std::string all;
  for (const std::string& part : parts) all += (all.empty() ? "" : ", ") + part;
  return all;
}

std::string sequence_of(const std::vector<std::string>& parts) {
  return core::join(R"({"type": "sequence", "elements": [)", joined(parts), "]}");
}

std::string one_of(const std::vector<std::string>& parts) {
  return core::join(R"({"type": "or", "elements": [)", joined(parts), "]}");
}

std::string any_number_of(const std::string& part) {
  return core::join(R"({"type": "star", "content": )", part, "}");
}

/// Writes the formats of one family's calls.
class TagWriter {
 public:
  TagWriter(const ToolFamily& family, const TagOptions& options)
      : family_(family), options_(options) {}

  /// Appends a text, in which special tokens stand for themselves.
  void add_text(std::string_view text, std::vector<std::string>& parts) const {
    while (!text.empty()) {
      size_t end = text.size();
      const std::pair<std::string, int64_t>* mark = nullptr;
      for (const auto& special : options_.special) {
        const size_t at = text.find(special.first);
        if (at >= end) continue;
        end = at;
        mark = &special;
      }
      if (end > 0) parts.push_back(text_format(text.substr(0, end)));
      if (mark == nullptr) return;
      parts.push_back(token_format(mark->second));
      text.remove_prefix(end + mark->first.size());
    }
  }

  /// The same, in which # is any number.
  void add_head(std::string_view head, std::vector<std::string>& parts) const {
    const size_t number = head.find('#');
    add_text(head.substr(0, number), parts);
    if (number == head.npos) return;
    parts.push_back(R"({"type": "regex", "pattern": "[0-9]{1,4}"})");
    add_text(head.substr(number + 1), parts);
  }

  /// One call, with its marks.
  std::string call(const Tool& tool) const {
    const auto [begin, end] = frame(tool.name);
    std::vector<std::string> parts;
    add_head(begin, parts);
    parts.push_back(schema_format(schema_of(tool, true), family_.tags.style));
    add_text(end, parts);
    return sequence_of(parts);
  }

  /// Calls of some of several, with the marks around all.
  std::string calls(const std::vector<std::string>& each, bool is_one) const {
    std::vector<std::string> parts;
    add_text(family_.section_begin, parts);
    parts.push_back(one_of(each));
    if (!is_one) {
      std::vector<std::string> further;
      add_text(family_.between, further);
      further.push_back(one_of(each));
      parts.push_back(any_number_of(sequence_of(further)));
    }
    add_text(family_.section_end, parts);
    return sequence_of(parts);
  }

  /// Any text before a mark: where that is a special token, without any.
  std::string any_until(std::string_view mark) const {
    std::vector<std::string> tokens;
    bool is_special = false;
    for (const auto& [text, token] : options_.special) {
      tokens.push_back(std::to_string(token));
      is_special |= text == mark;
    }
    if (is_special) {
      return core::join(R"({"type": "any_tokens", "exclude_tokens": [)", joined(tokens), "]}");
    }
    return core::join(R"({"type": "any_text", "excludes": [)", core::dump_json(std::string(mark)),
                      "]}");
  }

  /// Words, where a mark says that they are told.
  std::string words(const std::string& format) const {
    if (family_.form != CallForm::kChannels) return format;
    std::vector<std::string> parts;
    add_text("<|channel|>final<|message|>", parts);
    parts.push_back(format);
    return sequence_of({maybe_analysis(), sequence_of(parts)});
  }

  /// harmony's reasoning, which may come before a call.
  std::string maybe_analysis() const {
    std::vector<std::string> parts;
    add_text("<|channel|>analysis<|message|>", parts);
    parts.push_back(any_until("<|end|>"));
    add_text("<|end|><|start|>assistant", parts);
    return core::join(R"({"type": "optional", "content": )", sequence_of(parts), "}");
  }

 private:
  static std::string text_format(std::string_view text) {
    return core::join(R"({"type": "const_string", "value": )", core::dump_json(std::string(text)),
                      "}");
  }
  static std::string token_format(int64_t token) {
    return core::join(R"({"type": "token", "token": )", token, "}");
  }

  Frame frame(const std::string& name) const {
    const std::string begin(family_.call_begin), end(family_.call_end);
    const CallTags& tags = family_.tags;
    switch (family_.form) {
      case CallForm::kChannels:
        return {"<|channel|>commentary to=functions." + name + " <|constrain|>json<|message|>", ""};
      case CallForm::kTagged:
        return {core::join(begin, tags.has_lines ? "\n" : "", tags.before_name, name,
                           tags.after_name, tags.has_lines ? "\n" : ""),
                core::join("\n", tags.end, tags.end.empty() ? "" : "\n", end)};
      case CallForm::kBraces:
        return {core::join(begin, "call:", name), end};
      case CallForm::kNamed:
        return named_frame(name);
      default:
        return {core::join(begin, "[{\"name\": ", core::dump_json(name), ", \"arguments\": "),
                core::join("}]", end)};
    }
  }

  Frame named_frame(const std::string& name) const {
    const CallHead& head = family_.heads.front();
    // What ends the fence where the head begins one.
    const bool is_fenced =
        !family_.fence.empty() && head.after.find(family_.fence) != head.after.npos;
    return {core::join(family_.call_begin, head.before, name, head.after),
            core::join(is_fenced ? "\n" : "", is_fenced ? family_.fence : "", family_.call_end)};
  }

  const ToolFamily& family_;
  const TagOptions& options_;
};

// Calls alone, as the family writes them.
std::string marked_calls(const ToolFamily& family, const std::vector<Tool>& tools,
                         const ToolChoice& choice, const TagOptions& options) {
  const TagWriter writer(family, options);
  std::vector<std::string> each;
  for (const Tool& tool : tools) {
    if (is_meant(tool, choice)) each.push_back(writer.call(tool));
  }
  const bool is_channel = family.form == CallForm::kChannels;
  const bool is_one = !choice.is_parallel || !choice.name.empty() || is_channel ||
                      family.form == CallForm::kPython || family.form == CallForm::kObjects;
  const std::string calls = writer.calls(each, is_one);
  return is_channel ? sequence_of({writer.maybe_analysis(), calls}) : calls;
}

// Calls alone, by texts without special tokens.
std::string plain_calls(ToolFormat format, const std::vector<Tool>& tools,
                        const ToolChoice& choice) {
  std::vector<std::string> tags;
  for (const Tool& tool : tools) {
    if (is_meant(tool, choice)) tags.push_back(tag_of(format, tool, true));
  }
  const bool is_one = !choice.is_parallel || !choice.name.empty() || format != ToolFormat::kHermes;
  return core::join(R"({"type": "tags_with_separator", "tags": [)", joined(tags),
                    R"(], "separator": "\n", "at_least_one": true)",
                    is_one ? R"(, "stop_after_first": true)" : "", "}");
}

// Any text, whose calls are of these tools.
std::string triggered_calls(ToolFormat format, const std::vector<Tool>& tools,
                            const ToolChoice& choice) {
  std::vector<std::string> tags;
  for (const Tool& tool : tools) tags.push_back(tag_of(format, tool, tool.is_strict));
  return core::join(R"({"type": "triggered_tags", "triggers": ["<tool_call>"], "tags": [)",
                    joined(tags), "]", choice.is_parallel ? "" : R"(, "stop_after_first": true)",
                    "}");
}

std::string after_reasoning(const ToolFamily& family, const TagOptions& options,
                            const std::string& format) {
  const TagWriter writer(family, options);
  std::vector<std::string> parts = {writer.any_until(family.think_end)};
  writer.add_text(family.think_end, parts);
  parts.push_back(R"({"type": "regex", "pattern": "\\n{0,2}"})");
  parts.push_back(format);
  return sequence_of(parts);
}

bool is_plain(ToolFormat format) {
  return format == ToolFormat::kHermes || format == ToolFormat::kLlama ||
         format == ToolFormat::kMistral;
}

std::string calls_alone(ToolFormat format, const std::vector<Tool>& tools, const ToolChoice& choice,
                        const TagOptions& options) {
  return is_plain(format) ? plain_calls(format, tools, choice)
                          : marked_calls(tool_family(format), tools, choice, options);
}

}  // namespace

bool has_marked_calls(ToolFormat format) {
  return format != ToolFormat::kLlama && format != ToolFormat::kMistral;
}

std::string format_of(const grammar::Source& source) {
  switch (source.form) {
    case grammar::Form::kJsonObject:
      return schema_format(kAnyObject);
    case grammar::Form::kJsonSchema:
      return schema_format(source.text);
    case grammar::Form::kRegex:
      return core::join(R"({"type": "regex", "pattern": )", core::dump_json(source.text), "}");
    case grammar::Form::kEbnf:
      return core::join(R"({"type": "grammar", "grammar": )", core::dump_json(source.text), "}");
    case grammar::Form::kStructuralTag:
      break;
  }
  core::fail<core::InternalError>("serve: a structural tag inside another");
}

std::string structural_tag_of(ToolFormat format, const std::vector<Tool>& tools,
                              const ToolChoice& choice, const TagOptions& options) {
  const ToolFamily& family = tool_family(format);
  const bool is_required = choice.kind == ToolChoice::Kind::kRequired;
  std::string whole;
  if (is_required) {
    whole = calls_alone(format, tools, choice, options);
  } else if (!options.words.empty()) {
    whole = TagWriter(family, options).words(options.words);
    if (!tools.empty()) whole = one_of({calls_alone(format, tools, choice, options), whole});
  } else {
    whole = triggered_calls(format, tools, choice);
  }
  const bool is_held = is_required || !options.words.empty();
  if (is_held && options.begins_in_reasoning) whole = after_reasoning(family, options, whole);
  return core::join(R"({"type": "structural_tag", "format": )", whole, "}");
}

}  // namespace weft::serve
