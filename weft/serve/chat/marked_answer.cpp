#include "weft/serve/chat/marked_answer.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "weft/core/error.h"
#include "weft/serve/chat/call_body.h"

namespace weft::serve {

MarkedAnswer::MarkedAnswer(AnswerOptions options)
    : options_(std::move(options)), family_(&tool_family(options_.format)) {
  if (options_.begins_in_reasoning) state_ = State::kReasoning;
}

AnswerPiece MarkedAnswer::push(std::string_view text) {
  pending_.add(text);
  AnswerPiece piece;
  while (step(piece)) {
  }
  return piece;
}

// False where more text is needed.
bool MarkedAnswer::step(AnswerPiece& piece) {
  switch (state_) {
    case State::kBegin:
      return step_begin();
    case State::kReasoning:
      return step_reasoning(piece);
    case State::kWords:
      return step_words(piece);
    case State::kOpened:
      return step_opened(piece);
    case State::kBody:
      return step_body(piece);
    case State::kHead:
      return step_head(piece);
    case State::kArguments:
      return step_arguments(piece);
    case State::kTail:
      return step_tail();
    case State::kMembers:
      return step_members();
    case State::kSection:
      return step_section(piece);
  }
  return false;
}

// Llama's mark may be left out.
bool MarkedAnswer::may_be_bare_call() const {
  return options_.parses_calls && options_.format == ToolFormat::kLlama;
}

bool MarkedAnswer::step_begin() {
  const std::string_view text = pending_.front();
  const size_t num_space = pending_.num_space();
  const bool may_call = may_be_bare_call();
  if (text.empty() || is_begun(text, family_->think_begin) ||
      (may_call && is_begun(text, family_->call_begin))) {
    return false;
  }
  if (text.starts_with(family_->think_begin)) {
    pending_.drop(num_space + family_->think_begin.size());
    state_ = State::kReasoning;
    return true;
  }
  const bool is_call =
      (may_call && (text.front() == '{' || text.starts_with(family_->call_begin))) ||
      (options_.begins_in_calls && options_.format == ToolFormat::kMistral);
  if (strips_space_) pending_.drop(num_space);
  is_call ? begin_body() : void(state_ = State::kWords);
  return true;
}

// Gives out what stands before a mark. Returns that; empty where none has come.
std::string_view MarkedAnswer::take_until(std::span<const std::string_view> marks,
                                          std::string& out) {
  const FoundMark found = pending_.find(marks);
  out += pending_.take(found.mark.empty() ? pending_.num_searched() : found.at);
  return found.mark;
}

// Goes past a mark, which is kept until there is a call.
void MarkedAnswer::take_mark(size_t num_bytes, State next) {
  held_ += pending_.take(num_bytes);
  state_ = next;
}

bool MarkedAnswer::step_reasoning(AnswerPiece& piece) {
  const std::array marks = {family_->think_end};
  const std::string_view mark = take_until(marks, piece.reasoning);
  if (mark.empty()) return false;
  pending_.drop(mark.size());
  state_ = State::kBegin;
  strips_space_ = true;
  return true;
}

bool MarkedAnswer::step_words(AnswerPiece& piece) {
  if (!options_.parses_calls) {
    piece.content += pending_.take_all();
    return false;
  }
  std::string words;
  const std::array marks = {family_->section_begin, family_->call_begin};
  const std::string_view mark = take_until(marks, words);
  // Space before a call is no part of the words; before more of them it is.
  const size_t length = words.find_last_not_of(kCallSpace) + 1;
  if (length > 0) add_words(words.substr(0, length), piece);
  held_ += words.substr(length);
  if (mark.empty()) return false;
  take_mark(mark.size(), State::kOpened);
  return true;
}

void MarkedAnswer::add_words(const std::string& words, AnswerPiece& piece) {
  piece.content += std::exchange(held_, {}) + words;
  is_behind_call_ = false;
}

bool MarkedAnswer::step_opened(AnswerPiece& piece) {
  if (!family_->object_heads.empty()) return step_object(piece);
  if (family_->heads.empty()) {
    begin_body();
  } else if (family_->form == CallForm::kNamed) {
    state_ = held_.ends_with(family_->call_begin) ? State::kHead : State::kSection;
  } else {
    // Objects, or a name.
    const std::string_view text = pending_.front();
    if (text.empty()) return false;
    const bool is_body = text.front() == '[' || text.front() == '{';
    is_body ? begin_body() : void(state_ = State::kHead);
  }
  return true;
}

// An object that begins as most do is told as it comes, any other once it is whole.
bool MarkedAnswer::step_object(AnswerPiece& piece) {
  const std::string_view text = pending_.front();
  if (text.empty()) return false;
  bool may_begin = false;
  for (const std::string& name : options_.functions) {
    for (const CallHead& head : family_->object_heads) {
      const std::string begin = core::join(head.before, name, head.after);
      // Arguments that are a text are read as that.
      if (text.starts_with(begin + "{")) {
        begin_arguments({"", name, ""}, pending_.num_space() + begin.size(), piece);
        return true;
      }
      may_begin |= is_begun(text, begin + "{");
    }
  }
  if (may_begin) return false;
  begin_body();
  return true;
}

void MarkedAnswer::begin_arguments(text::ToolCall call, size_t num_bytes, AnswerPiece& piece) {
  piece.calls.push_back(std::move(call));
  pending_.drop(num_bytes);
  held_.clear();
  is_behind_call_ = true;
  has_fence_ = false;
  object_ = ObjectScan();
  state_ = State::kArguments;
}

void MarkedAnswer::begin_body() {
  object_ = ObjectScan();
  state_ = State::kBody;
}

bool MarkedAnswer::step_body(AnswerPiece& piece) {
  if (family_->call_end.empty()) return false;
  const std::array ends = {family_->call_end};
  // A mark in a string of JSON is letters, unless the string never ends.
  if (family_->form == CallForm::kObjects && !has_ended_) {
    const std::string_view text = pending_.front();
    if (text.empty()) return false;
    const bool is_json = text.front() == '{' || text.front() == '[';
    if (is_json) pending_.pass_over(object_.take(pending_.unsearched(), ends));
  }
  const FoundMark end = pending_.find(ends);
  if (end.mark.empty()) return false;
  end_body(pending_.text().substr(0, end.at), end.mark, piece);
  pending_.drop(end.at + end.mark.size());
  state_ = State::kWords;
  return true;
}

void MarkedAnswer::end_body(std::string_view body, std::string_view mark, AnswerPiece& piece) {
  std::vector<text::ToolCall> calls = read_calls_of(*family_, body, options_);
  calls.empty() ? add_words(core::join(body, mark), piece) : add_calls(std::move(calls), piece);
}

void MarkedAnswer::add_calls(std::vector<text::ToolCall> calls, AnswerPiece& piece) {
  std::ranges::move(calls, std::back_inserter(piece.calls));
  held_.clear();
  is_behind_call_ = true;
}

// Arguments begin with the first brace, as names have none.
bool MarkedAnswer::step_head(AnswerPiece& piece) {
  const std::array ends = {std::string_view("{"), family_->call_end};
  const FoundMark end = pending_.find(ends);
  if (end.mark.empty()) return false;
  text::ToolCall call;
  if (end.mark == "{") call = call_of_head(*family_, pending_.text().substr(0, end.at), options_);
  if (call.name.empty()) {
    give_up(end.at + (end.mark == "{" ? 0 : end.mark.size()), piece);
    return true;
  }
  begin_arguments(std::move(call), end.at, piece);
  return true;
}

// What looked like a call is words.
void MarkedAnswer::give_up(size_t num_bytes, AnswerPiece& piece) {
  add_words(pending_.take(num_bytes), piece);
  state_ = State::kWords;
}

// Arguments end with their object, or with the call.
bool MarkedAnswer::step_arguments(AnswerPiece& piece) {
  const std::array ends = {family_->call_end, family_->section_end};
  piece.add_arguments(pending_.take(object_.take(pending_.text(), ends)));
  const std::string_view rest = pending_.text();
  if (!object_.is_done() && (rest.empty() || is_begun(rest, ends))) return false;
  state_ = State::kTail;
  return true;
}

bool MarkedAnswer::step_tail() {
  const std::string_view fence = has_fence_ ? std::string_view() : family_->fence;
  const std::array marks = {fence, family_->call_end};
  const std::string_view text = pending_.front();
  if (text.empty() || is_begun(text, marks)) return false;
  const size_t num_space = pending_.num_space();
  if (!fence.empty() && text.starts_with(fence)) {
    pending_.drop(num_space + fence.size());
    has_fence_ = true;
    return true;
  }
  if (!family_->object_heads.empty() && !has_fence_ && text.front() == ',') {
    object_ = ObjectScan(1);
    state_ = State::kMembers;
    return true;
  }
  if (!family_->call_end.empty() && text.starts_with(family_->call_end)) {
    pending_.drop(num_space + family_->call_end.size());
  }
  state_ = State::kSection;
  return true;
}

// What a call's object has behind its arguments says nothing.
bool MarkedAnswer::step_members() {
  const std::array ends = {family_->call_end};
  pending_.drop(object_.take(pending_.text(), ends));
  if (!object_.is_done() && !pending_.text().starts_with(family_->call_end)) return false;
  has_fence_ = true;
  state_ = State::kTail;
  return true;
}

bool MarkedAnswer::step_section(AnswerPiece& piece) {
  const std::array marks = {family_->call_begin, family_->section_end};
  const std::string_view text = pending_.front();
  if (text.empty() || is_begun(text, marks)) return false;
  const size_t num_space = pending_.num_space();
  if (text.starts_with(family_->call_begin)) {
    take_mark(num_space + family_->call_begin.size(), State::kOpened);
  } else if (family_->section_end.empty() || !text.starts_with(family_->section_end)) {
    give_up(0, piece);
  } else if (held_.empty()) {
    pending_.drop(num_space + family_->section_end.size());
    state_ = State::kWords;
  } else {
    give_up(num_space + family_->section_end.size(), piece);
  }
  return true;
}

// Objects without a mark may be an answer in words.
bool MarkedAnswer::are_meant(std::string_view text,
                             const std::vector<text::ToolCall>& calls) const {
  if (options_.format != ToolFormat::kLlama || options_.functions.empty()) return true;
  if (!held_.empty() || stripped(text).starts_with(family_->call_begin)) return true;
  return std::ranges::all_of(
      calls, [&](const text::ToolCall& call) { return options_.is_given(call.name); });
}

void MarkedAnswer::finish_body(const std::string& rest, AnswerPiece& piece) {
  std::string_view body = stripped(rest);
  if (may_be_bare_call() && body.starts_with(family_->call_begin)) {
    body.remove_prefix(family_->call_begin.size());
  }
  std::vector<text::ToolCall> calls = read_calls_of(*family_, body, options_);
  const bool is_words = calls.empty() || !are_meant(rest, calls);
  is_words ? add_words(rest, piece) : add_calls(std::move(calls), piece);
}

void MarkedAnswer::finish_words(const std::string& rest, AnswerPiece& piece) {
  // Space behind a call is no part of the words.
  const bool is_space = stripped(held_).empty() && stripped(rest).empty();
  if (!is_behind_call_ || !is_space) add_words(rest, piece);
}

AnswerPiece MarkedAnswer::finish() {
  AnswerPiece piece;
  has_ended_ = true;
  pending_.search_again();
  while (step(piece)) {
  }
  const std::string rest = pending_.take_all();
  switch (state_) {
    case State::kReasoning:
      piece.reasoning += rest;
      break;
    case State::kBody:
    case State::kOpened:
      finish_body(rest, piece);
      break;
    case State::kArguments:
      piece.add_arguments(rest);
      break;
    case State::kTail:
      if (!has_fence_ && is_begun(stripped(rest), family_->fence)) break;
      finish_words(rest, piece);
      break;
    case State::kMembers:
      break;
    default:
      finish_words(rest, piece);
  }
  return piece;
}

}  // namespace weft::serve
