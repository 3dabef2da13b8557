#include "weft/serve/chat/marked_answer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "weft/core/error.h"
#include "weft/serve/chat/call_body.h"

namespace weft::serve {

MarkedAnswer::MarkedAnswer(AnswerOptions options)
    : options_(std::move(options)), family_(&tool_family(options_.format)) {
  if (options_.begins_in_reasoning) state_ = State::kReasoning;
}

AnswerPiece MarkedAnswer::push(std::string_view text) {
  pending_ += text;
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
  const std::string_view text = stripped_front(pending_);
  const size_t num_space = pending_.size() - text.size();
  const bool may_call = may_be_bare_call();
  if (text.empty() || is_begun(text, family_->think_begin) ||
      (may_call && is_begun(text, family_->call_begin))) {
    return false;
  }
  if (text.starts_with(family_->think_begin)) {
    pending_.erase(0, num_space + family_->think_begin.size());
    state_ = State::kReasoning;
    return true;
  }
  const bool is_call =
      (may_call && (text.front() == '{' || text.starts_with(family_->call_begin))) ||
      (options_.begins_in_calls && options_.format == ToolFormat::kMistral);
  if (strips_space_) pending_.erase(0, num_space);
  state_ = is_call ? State::kBody : State::kWords;
  return true;
}

bool MarkedAnswer::take_until(std::span<const std::string_view> marks, State next,
                              std::string& out) {
  const FoundMark found = first_mark(pending_, marks);
  if (found.mark.empty()) {
    const size_t ready = size_before_mark(pending_, marks);
    out += pending_.substr(0, ready);
    pending_.erase(0, ready);
    return false;
  }
  out += pending_.substr(0, found.at);
  pending_.erase(0, found.at);
  take_mark(found.mark.size(), next);
  return true;
}

// Goes past a mark, which is kept until there is a call.
void MarkedAnswer::take_mark(size_t num_bytes, State next) {
  marks_ += pending_.substr(0, num_bytes);
  pending_.erase(0, num_bytes);
  state_ = next;
}

bool MarkedAnswer::step_reasoning(AnswerPiece& piece) {
  const std::array marks = {family_->think_end};
  if (!take_until(marks, State::kBegin, piece.reasoning)) return false;
  marks_.clear();
  strips_space_ = true;
  return true;
}

bool MarkedAnswer::step_words(AnswerPiece& piece) {
  if (!options_.parses_calls) {
    piece.content += std::exchange(pending_, {});
    return false;
  }
  std::string words;
  const std::array marks = {family_->section_begin, family_->call_begin};
  const bool goes_on = take_until(marks, State::kOpened, words);
  // Space before a mark is no part of the words; before more of them it is.
  const size_t length = words.find_last_not_of(kCallSpace) + 1;
  if (!goes_on) pending_.insert(0, words.substr(length));
  piece.content += words.substr(0, length);
  return goes_on;
}

bool MarkedAnswer::step_opened(AnswerPiece& piece) {
  if (!family_->object_heads.empty()) return step_object(piece);
  if (family_->heads.empty()) {
    state_ = State::kBody;
  } else if (family_->form == CallForm::kNamed) {
    state_ = marks_.ends_with(family_->call_begin) ? State::kHead : State::kSection;
  } else {
    // Objects, or a name.
    const std::string_view text = stripped_front(pending_);
    if (text.empty()) return false;
    state_ = text.front() == '[' || text.front() == '{' ? State::kBody : State::kHead;
  }
  return true;
}

// An object that begins as most do is told as it comes, any other once it is whole.
bool MarkedAnswer::step_object(AnswerPiece& piece) {
  const std::string_view text = stripped_front(pending_);
  if (text.empty()) return false;
  bool may_begin = false;
  for (const std::string& name : options_.functions) {
    for (const CallHead& head : family_->object_heads) {
      const std::string begin = core::join(head.before, name, head.after);
      // Arguments that are a text are read as that.
      if (text.starts_with(begin + "{")) {
        begin_arguments(name, pending_.size() - text.size() + begin.size(), piece);
        return true;
      }
      may_begin |= is_begun(text, begin + "{");
    }
  }
  if (may_begin) return false;
  state_ = State::kBody;
  return true;
}

void MarkedAnswer::begin_arguments(const std::string& name, size_t num_bytes, AnswerPiece& piece) {
  piece.calls.push_back({"", name, ""});
  pending_.erase(0, num_bytes);
  marks_.clear();
  has_calls_ = true;
  arguments_ = {};
  state_ = State::kArguments;
}

bool MarkedAnswer::step_body(AnswerPiece& piece) {
  if (family_->call_end.empty()) return false;
  const size_t end = pending_.find(family_->call_end);
  if (end == std::string::npos) return false;
  end_body(std::string_view(pending_).substr(0, end), family_->call_end, piece);
  pending_.erase(0, end + family_->call_end.size());
  state_ = State::kWords;
  return true;
}

void MarkedAnswer::end_body(std::string_view body, std::string_view mark, AnswerPiece& piece) {
  std::vector<text::ToolCall> calls = read_calls_of(*family_, body, options_);
  has_calls_ |= !calls.empty();
  const std::string begin = std::exchange(marks_, {});
  if (calls.empty()) {
    piece.content += core::join(begin, body, mark);
  } else {
    std::ranges::move(calls, std::back_inserter(piece.calls));
  }
}

// Arguments begin with the first brace, as names have none.
bool MarkedAnswer::step_head(AnswerPiece& piece) {
  const std::array ends = {std::string_view("{"), family_->call_end};
  const FoundMark end = first_mark(pending_, ends);
  if (end.mark.empty()) return false;
  const std::string_view head = std::string_view(pending_).substr(0, end.at);
  const std::string name = end.mark == "{" ? function_of(*family_, head, options_) : "";
  if (name.empty()) {
    give_up(end.at + (end.mark == "{" ? 0 : end.mark.size()), piece);
    return true;
  }
  begin_arguments(name, end.at, piece);
  return true;
}

// What looked like a call is words.
void MarkedAnswer::give_up(size_t num_bytes, AnswerPiece& piece) {
  piece.content += std::exchange(marks_, {}) + pending_.substr(0, num_bytes);
  pending_.erase(0, num_bytes);
  state_ = State::kWords;
}

// Arguments end with their object, or with the call.
bool MarkedAnswer::step_arguments(AnswerPiece& piece) {
  const std::array ends = {family_->call_end, family_->section_end};
  const FoundMark end = first_mark(pending_, ends);
  const size_t most = end.mark.empty() ? size_before_mark(pending_, ends) : end.at;
  const size_t size = arguments_.take(std::string_view(pending_).substr(0, most));
  piece.add_arguments(std::string_view(pending_).substr(0, size));
  pending_.erase(0, size);
  if (end.mark.empty() && !arguments_.is_done()) return false;
  state_ = State::kTail;
  return true;
}

bool MarkedAnswer::step_tail() {
  const std::array marks = {family_->fence, family_->call_end};
  const std::string_view text = stripped_front(pending_);
  if (text.empty() || is_begun(text, marks)) return false;
  for (const std::string_view mark : marks) {
    if (mark.empty() || !text.starts_with(mark)) continue;
    pending_.erase(0, pending_.size() - text.size() + mark.size());
    if (mark == family_->call_end) state_ = State::kSection;
    return true;
  }
  state_ = State::kSection;
  return true;
}

bool MarkedAnswer::step_section(AnswerPiece& piece) {
  const std::array marks = {family_->call_begin, family_->section_end};
  const std::string_view text = stripped_front(pending_);
  if (text.empty() || is_begun(text, marks)) return false;
  const size_t num_space = pending_.size() - text.size();
  if (text.starts_with(family_->call_begin)) {
    take_mark(num_space + family_->call_begin.size(), State::kOpened);
  } else if (!family_->section_end.empty() && text.starts_with(family_->section_end)) {
    const size_t size = num_space + family_->section_end.size();
    marks_.empty() ? take_mark(size, State::kWords) : give_up(size, piece);
    marks_.clear();
  } else {
    give_up(0, piece);
  }
  return true;
}

// Objects without a mark may be an answer in words.
bool MarkedAnswer::are_meant(std::string_view text,
                             const std::vector<text::ToolCall>& calls) const {
  if (options_.format != ToolFormat::kLlama || options_.functions.empty()) return true;
  if (!marks_.empty() || stripped(text).starts_with(family_->call_begin)) return true;
  return std::ranges::all_of(
      calls, [&](const text::ToolCall& call) { return options_.is_given(call.name); });
}

void MarkedAnswer::finish_body(const std::string& rest, AnswerPiece& piece) {
  std::string_view body = stripped(rest);
  if (may_be_bare_call() && body.starts_with(family_->call_begin)) {
    body.remove_prefix(family_->call_begin.size());
  }
  piece.calls = read_calls_of(*family_, body, options_);
  if (!are_meant(rest, piece.calls)) piece.calls.clear();
  if (piece.calls.empty()) piece.content = marks_ + rest;
}

AnswerPiece MarkedAnswer::finish() {
  AnswerPiece piece;
  std::string rest = std::exchange(pending_, {});
  const bool is_space = stripped(rest).empty();
  switch (state_) {
    case State::kReasoning:
      piece.reasoning = std::move(rest);
      break;
    case State::kBody:
      finish_body(rest, piece);
      break;
    case State::kArguments:
      piece.add_arguments(rest);
      break;
    case State::kTail:
      if (!is_space && !is_begun(stripped(rest), family_->fence)) piece.content = std::move(rest);
      break;
    case State::kOpened:
      finish_body(rest, piece);
      break;
    default:
      if (!is_space || !has_calls_ || !marks_.empty()) piece.content = marks_ + rest;
  }
  marks_.clear();
  return piece;
}

}  // namespace weft::serve
