#include "weft/serve/chat/answer_parser.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "weft/core/error.h"
#include "weft/core/json.h"
#include "weft/serve/chat/member_text.h"

namespace weft::serve {
namespace {

constexpr std::string_view kThink = "<think>", kThinkEnd = "</think>";
constexpr std::string_view kCallBegin = "<tool_call>", kCallEnd = "</tool_call>";
constexpr std::string_view kCallsBegin = "[TOOL_CALLS]", kArguments = "[ARGS]";
constexpr std::string_view kPythonTag = "<|python_tag|>";
constexpr std::string_view kSpace = " \t\r\n";

std::string_view begin_marker(ToolFormat format) {
  switch (format) {
    case ToolFormat::kHermes:
      return kCallBegin;
    case ToolFormat::kLlama:
      return kPythonTag;
    case ToolFormat::kMistral:
      return kCallsBegin;
  }
  core::fail<core::InternalError>("serve: unknown format of tools");
}

std::string_view stripped(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

bool is_begun(std::string_view text, std::string_view marker) {
  return text.size() < marker.size() && marker.starts_with(text);
}

// How many bytes at the text's end may become the marker.
size_t begun_at_end(std::string_view text, std::string_view marker) {
  for (size_t size = std::min(text.size(), marker.size() - 1); size > 0; --size) {
    if (text.ends_with(marker.substr(0, size))) return size;
  }
  return 0;
}

// One call's object.
std::optional<text::ToolCall> parse_call(const std::string& text) {
  nlohmann::json object;
  try {
    object = core::parse_json(text, "call");
  } catch (const core::FormatError&) {
    return std::nullopt;
  }
  const bool has_name = object.is_object() && object.contains("name") && object["name"].is_string();
  if (!has_name) return std::nullopt;
  text::ToolCall call{"", object["name"].get<std::string>(), "{}"};
  for (const char* name : {"arguments", "parameters"}) {
    if (!object.contains(name)) continue;
    // Some write the arguments' text.
    call.arguments = object[name].is_string() ? object[name].get<std::string>()
                                              : member_text(text, {name}).value_or("{}");
    break;
  }
  return call;
}

// The parts between semicolons that stand in no string.
std::vector<std::string> split_at_semicolons(std::string_view text) {
  std::vector<std::string> parts(1);
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"' && (i == 0 || text[i - 1] != '\\')) in_string = !in_string;
    if (text[i] == ';' && !in_string) {
      parts.emplace_back();
    } else {
      parts.back() += text[i];
    }
  }
  return parts;
}

std::vector<std::string> objects_of(ToolFormat format, std::string_view text) {
  if (format == ToolFormat::kLlama) return split_at_semicolons(text);
  if (!text.starts_with('[')) return {std::string(text)};
  try {
    core::parse_json(text, "calls");
  } catch (const core::FormatError&) {
    return {};
  }
  return element_texts(text);
}

}  // namespace

std::vector<text::ToolCall> parse_calls(ToolFormat format, std::string_view text) {
  text = stripped(text);
  if (text.starts_with(kPythonTag)) text.remove_prefix(kPythonTag.size());
  // Newer Mistral: NAME[ARGS]{…}.
  const size_t arguments = text.find(kArguments);
  if (format == ToolFormat::kMistral && !text.starts_with('[') && arguments != text.npos) {
    return {{"", std::string(stripped(text.substr(0, arguments))),
             std::string(stripped(text.substr(arguments + kArguments.size())))}};
  }
  std::vector<text::ToolCall> calls;
  for (const std::string& object : objects_of(format, text)) {
    auto call = parse_call(object);
    if (!call) return {};
    calls.push_back(std::move(*call));
  }
  return calls;
}

AnswerParser::AnswerParser(const Options& options) : options_(options) {
  if (options.begins_in_reasoning) state_ = State::kReasoning;
}

AnswerPiece AnswerParser::push(std::string_view text) {
  pending_ += text;
  AnswerPiece piece;
  while (step(piece)) {
  }
  return piece;
}

// False where more text is needed.
bool AnswerParser::step(AnswerPiece& piece) {
  switch (state_) {
    case State::kBegin:
      return step_begin();
    case State::kReasoning:
      return step_until(kThinkEnd, State::kBegin, piece.reasoning);
    case State::kWords:
      return step_words(piece);
    case State::kCall:
      return step_call(piece);
  }
  return false;
}

bool AnswerParser::step_begin() {
  const size_t begin = std::min(pending_.find_first_not_of(kSpace), pending_.size());
  const std::string_view text = std::string_view(pending_).substr(begin);
  const bool may_call = options_.parses_calls && options_.format == ToolFormat::kLlama;
  if (text.empty() || is_begun(text, kThink) || (may_call && is_begun(text, kPythonTag))) {
    return false;
  }
  if (text.starts_with(kThink)) {
    pending_.erase(0, begin + kThink.size());
    state_ = State::kReasoning;
    return true;
  }
  if (strips_space_) pending_.erase(0, begin);
  const bool is_call = (may_call && (text.front() == '{' || text.starts_with(kPythonTag))) ||
                       (options_.begins_in_calls && options_.format == ToolFormat::kMistral);
  state_ = is_call ? State::kCall : State::kWords;
  return true;
}

// Gives out what stands before the marker.
bool AnswerParser::step_until(std::string_view marker, State next, std::string& out) {
  const size_t found = pending_.find(marker);
  if (found == std::string::npos) {
    const size_t ready = pending_.size() - begun_at_end(pending_, marker);
    out += pending_.substr(0, ready);
    pending_.erase(0, ready);
    return false;
  }
  out += pending_.substr(0, found);
  pending_.erase(0, found + marker.size());
  strips_space_ = true;
  state_ = next;
  return true;
}

bool AnswerParser::step_words(AnswerPiece& piece) {
  if (!options_.parses_calls) {
    piece.content += std::exchange(pending_, {});
    return false;
  }
  std::string words;
  const bool goes_on = step_until(begin_marker(options_.format), State::kCall, words);
  // Space before a mark is no part of the words; before more of them it is.
  const size_t end = words.find_last_not_of(kSpace);
  const size_t length = end == std::string::npos ? 0 : end + 1;
  if (!goes_on) pending_.insert(0, words.substr(length));
  piece.content += words.substr(0, length);
  return goes_on;
}

bool AnswerParser::step_call(AnswerPiece& piece) {
  if (options_.format != ToolFormat::kHermes) return false;
  const size_t end = pending_.find(kCallEnd);
  if (end == std::string::npos) return false;
  end_call(std::string_view(pending_).substr(0, end), piece);
  pending_.erase(0, end + kCallEnd.size());
  state_ = State::kWords;
  return true;
}

void AnswerParser::end_call(std::string_view body, AnswerPiece& piece) {
  std::vector<text::ToolCall> calls = parse_calls(options_.format, body);
  has_calls_ |= !calls.empty();
  if (calls.empty()) {
    piece.content += core::join(kCallBegin, body, kCallEnd);
  } else {
    std::ranges::move(calls, std::back_inserter(piece.calls));
  }
}

// Objects without a mark may be an answer in words.
bool AnswerParser::are_meant(std::string_view text,
                             const std::vector<text::ToolCall>& calls) const {
  if (options_.format != ToolFormat::kLlama || options_.functions.empty()) return true;
  if (stripped(text).starts_with(kPythonTag)) return true;
  return std::ranges::all_of(calls, [&](const text::ToolCall& call) {
    return std::ranges::find(options_.functions, call.name) != options_.functions.end();
  });
}

AnswerPiece AnswerParser::finish() {
  AnswerPiece piece;
  std::string rest = std::exchange(pending_, {});
  if (state_ == State::kReasoning) {
    piece.reasoning = std::move(rest);
  } else if (state_ != State::kCall) {
    const bool is_space = rest.find_first_not_of(kSpace) == std::string::npos;
    if (!is_space || !has_calls_) piece.content = std::move(rest);
  } else {
    piece.calls = parse_calls(options_.format, rest);
    if (!are_meant(rest, piece.calls)) piece.calls.clear();
    const bool had_marker = options_.format != ToolFormat::kLlama && !options_.begins_in_calls;
    if (piece.calls.empty()) {
      piece.content = (had_marker ? std::string(begin_marker(options_.format)) : "") + rest;
    }
  }
  return piece;
}

}  // namespace weft::serve
