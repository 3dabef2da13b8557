#include "weft/serve/chat/harmony_answer.h"

#include <algorithm>
#include <array>

#include "weft/serve/chat/call_marks.h"

namespace weft::serve {
namespace {

constexpr std::string_view kStart = "<|start|>", kChannel = "<|channel|>", kMessage = "<|message|>",
                           kConstrain = "<|constrain|>", kMessageEnd = "<|end|>",
                           kCallSent = "<|call|>", kReturn = "<|return|>",
                           kTo = "to=", kFunctions = "functions.";

// What begins a header, and what ends a body.
constexpr std::string_view kHeaderBegins[] = {kStart, kChannel, kMessage, kTo};
constexpr std::string_view kBodyEnds[] = {kMessageEnd, kCallSent, kReturn, kStart, kChannel};

// The word behind a mark.
std::string_view word_after(std::string_view header, std::string_view mark) {
  const size_t at = header.find(mark);
  if (at == header.npos) return {};
  header = stripped_front(header.substr(at + mark.size()));
  return header.substr(0, header.find_first_of(" \t\r\n<"));
}

}  // namespace

const std::vector<std::string_view>& harmony_marks() {
  static const std::vector<std::string_view> marks = {kStart, kChannel, kMessage, kConstrain,
                                                      kMessageEnd};
  return marks;
}

AnswerPiece HarmonyAnswer::push(std::string_view text) {
  pending_.add(text);
  AnswerPiece piece;
  while (step(piece)) {
  }
  return piece;
}

// False where more text is needed.
bool HarmonyAnswer::step(AnswerPiece& piece) {
  switch (state_) {
    case State::kBetween:
      return step_between();
    case State::kHeader:
      return step_header(piece);
    case State::kBody:
      return step_body(piece);
  }
  return false;
}

bool HarmonyAnswer::step_between() {
  const std::string_view text = pending_.front();
  const std::span<const std::string_view> begins(kHeaderBegins);
  if (text.empty() || is_begun(text, begins)) return false;
  // A later message says its sender first.
  const bool is_header = std::ranges::any_of(begins, [&](std::string_view begin) {
    return text.starts_with(begin) && (is_first_ || begin != kTo);
  });
  state_ = is_header ? State::kHeader : State::kBody;
  body_ = Body::kWords;
  is_first_ = false;
  return true;
}

bool HarmonyAnswer::step_header(AnswerPiece& piece) {
  const std::array ends = {kMessage};
  const FoundMark end = pending_.find(ends);
  if (end.mark.empty()) return false;
  header_ = pending_.take(end.at + end.mark.size());
  begin_body(piece);
  return true;
}

void HarmonyAnswer::begin_body(AnswerPiece& piece) {
  state_ = State::kBody;
  const std::string_view channel = word_after(header_, kChannel), to = word_after(header_, kTo);
  const bool is_function = options_.parses_calls && to.starts_with(kFunctions);
  function_ = is_function ? to.substr(kFunctions.size()) : "";
  if (!function_.empty() && options_.is_given(function_)) {
    body_ = Body::kCall;
  } else if (to.empty()) {
    body_ = channel == "analysis" ? Body::kReasoning : Body::kWords;
  } else {
    body_ = Body::kWords;
    piece.content += header_;
  }
}

bool HarmonyAnswer::step_body(AnswerPiece& piece) {
  if (body_ == Body::kCall && !begin_call(piece)) return false;
  // A mark in a string of the arguments is letters.
  if (body_ == Body::kCallBegun) {
    give(pending_.take(arguments_.take(pending_.text(), kBodyEnds)), piece);
  }
  const FoundMark end = pending_.find(kBodyEnds);
  const bool is_over = !end.mark.empty();
  give(pending_.take(is_over ? end.at : pending_.num_searched()), piece);
  if (!is_over) return false;
  // What begins the next header belongs to it.
  if (end.mark != kStart && end.mark != kChannel) pending_.drop(end.mark.size());
  state_ = State::kBetween;
  return true;
}

// A body that is no object is words. False where that does not show yet.
bool HarmonyAnswer::begin_call(AnswerPiece& piece) {
  const std::string_view text = pending_.front();
  if (text.empty() || is_begun(text, std::span<const std::string_view>(kBodyEnds))) return false;
  if (text.starts_with('{')) {
    pending_.drop(pending_.num_space());
    piece.calls.push_back({"", function_, ""});
    arguments_ = ObjectScan();
    body_ = Body::kCallBegun;
  } else {
    piece.content += header_;
    body_ = Body::kWords;
  }
  return true;
}

void HarmonyAnswer::give(std::string_view text, AnswerPiece& piece) {
  if (body_ == Body::kCallBegun) {
    piece.add_arguments(text);
  } else {
    (body_ == Body::kReasoning ? piece.reasoning : piece.content) += text;
  }
}

AnswerPiece HarmonyAnswer::finish() {
  AnswerPiece piece;
  const std::string rest = pending_.take_all();
  if (state_ == State::kBody && body_ == Body::kCall) {
    piece.content = header_ + rest;
  } else if (state_ == State::kBody) {
    give(rest, piece);
  } else if (state_ == State::kHeader || is_first_ || !stripped(rest).empty()) {
    piece.content = rest;
  }
  return piece;
}

}  // namespace weft::serve
