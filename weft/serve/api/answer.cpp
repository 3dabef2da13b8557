#include "weft/serve/api/answer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <string_view>
#include <utility>

#include "weft/core/clock.h"
#include "weft/core/error.h"
#include "weft/core/json.h"
#include "weft/serve/api/api_error.h"

namespace weft::serve {
namespace {

const char* name_of(SequenceEnd end) {
  switch (end) {
    case SequenceEnd::kStop:
      return "stop";
    case SequenceEnd::kLength:
      return "length";
    case SequenceEnd::kCancelled:
      return "cancelled";
    case SequenceEnd::kFailed:
      return "failed";
  }
  core::fail<core::InternalError>("serve: unknown end of a sequence");
}

// Nine letters and digits: some templates take no other.
std::string random_call_id() {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789";
  static thread_local std::mt19937_64 random{std::random_device{}()};
  std::string id;
  for (int i = 0; i < 9; ++i) id += kLetters[random() % kLetters.size()];
  return id;
}

}  // namespace

Answer::Answer(const CompletionRequest& request, std::unique_ptr<ReplyForm> form,
               std::shared_ptr<HttpReply> reply, const Context& context)
    : form_(std::move(form)),
      reply_(std::move(reply)),
      context_(context),
      is_chat_(request.is_chat),
      is_stream_(request.is_stream),
      tells_logprobs_(request.options.generate.num_logprobs >= 0),
      is_parallel_(request.tool_choice.is_parallel),
      num_choices_(static_cast<size_t>(request.num_choices)) {}

std::vector<uint64_t> Answer::start(const std::vector<std::string>& first_texts, const Usage& usage,
                                    const std::function<std::vector<uint64_t>()>& submit) {
  const std::lock_guard lock(mutex_);
  usage_ = usage;
  choices_.resize(first_texts.size());
  parsers_.resize(first_texts.size(), AnswerParser(context_.parsing));
  last_token_.resize(first_texts.size(), start_);
  num_drawn_.resize(first_texts.size());
  num_calls_.resize(first_texts.size());
  for (Choice& choice : choices_) choice.tells_logprobs = tells_logprobs_;
  auto numbers = submit();
  begin(first_texts);
  return numbers;
}

void Answer::begin(const std::vector<std::string>& first_texts) {
  if (!is_stream_) {
    for (size_t i = 0; i < choices_.size(); ++i) choices_[i].text = first_texts[i];
    return;
  }
  HttpAnswer head;
  head.content_type = "text/event-stream";
  head.fields = {{"Cache-Control", "no-cache"}};
  reply_->begin_stream(head);
  const std::string events = form_->begin_stream(first_texts);
  if (!events.empty()) reply_->write(events);
}

void Answer::take(size_t choice, const SequenceEvent& event) {
  const std::lock_guard lock(mutex_);
  if (event.num_drawn > num_drawn_[choice]) note_token(choice);
  const Choice news = news_of(choice, event);
  Choice& own = choices_[choice];
  if (is_stream_) {
    send(choice, news);
    own.first_call += static_cast<size_t>(std::ranges::count_if(
        news.calls, [](const text::ToolCall& call) { return !call.name.empty(); }));
  } else {
    own.text += news.text;
    own.reasoning += news.reasoning;
    add_calls(news.calls, own.calls);
    own.tokens.insert(own.tokens.end(), news.tokens.begin(), news.tokens.end());
  }
  if (!event.end) return;
  own.end = event.end;
  // The choices of a prompt have it in common.
  if (choice % num_choices_ == 0) usage_.num_reused += event.num_reused;
  if (!event.error.empty()) error_ = event.error;
  if (++num_ended_ == choices_.size()) finish();
}

void Answer::note_token(size_t choice) {
  const auto now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - last_token_[choice]).count();
  if (num_drawn_[choice]++ == 0) {
    context_.metrics.add_first_token(seconds);
    if (!first_token_seconds_) first_token_seconds_ = seconds;
  } else {
    context_.metrics.add_next_token(seconds);
  }
  context_.metrics.add_drawn(1);
  last_token_[choice] = now;
}

Choice Answer::news_of(size_t choice, const SequenceEvent& event) {
  Choice news;
  news.first_call = choices_[choice].first_call;
  news.tells_logprobs = tells_logprobs_;
  if (event.token) news.tokens.push_back(*event.token);
  if (event.end == SequenceEnd::kStop || event.end == SequenceEnd::kLength) news.end = event.end;
  if (!is_chat_) {
    news.text = event.text;
    return news;
  }
  AnswerParser& parser = parsers_[choice];
  const auto add = [&](AnswerPiece piece) {
    news.text += piece.content;
    news.reasoning += piece.reasoning;
    for (text::ToolCall& call : piece.calls) {
      if (!call.name.empty()) ++num_calls_[choice];
      if (!is_parallel_ && num_calls_[choice] > 1) continue;
      if (!call.name.empty() && call.id.empty()) call.id = random_call_id();
      news.calls.push_back(std::move(call));
    }
  };
  add(parser.push(event.text));
  if (event.end) add(parser.finish());
  return news;
}

void Answer::send(size_t choice, const Choice& news) {
  const bool is_empty = news.text.empty() && news.reasoning.empty() && news.calls.empty();
  if (is_empty && news.tokens.empty() && !news.end) return;
  reply_->write(form_->stream_news(choice, news));
}

// What the client has of it, by the worst of its choices.
SequenceEnd Answer::end_of_all() const {
  for (const SequenceEnd end : {SequenceEnd::kFailed, SequenceEnd::kCancelled}) {
    const auto has_it = [end](const Choice& choice) { return choice.end == end; };
    if (std::ranges::any_of(choices_, has_it)) return end;
  }
  return *choices_.front().end;
}

void Answer::finish() {
  usage_.num_drawn = std::accumulate(num_drawn_.begin(), num_drawn_.end(), int64_t{0});
  context_.metrics.add_request({form_->id(), context_.request_id, usage_.num_prompt,
                                usage_.num_reused, usage_.num_drawn, first_token_seconds_,
                                core::seconds_since(start_), name_of(end_of_all())});
  is_stream_ ? finish_stream() : finish_whole();
}

void Answer::finish_stream() {
  reply_->write(form_->end_stream(choices_, usage_, error_));
  reply_->end();
}

void Answer::finish_whole() {
  HttpAnswer answer;
  if (error_.empty()) {
    answer.body = form_->whole(choices_, usage_);
  } else {
    answer = ApiError(500, error_type_of(500), error_).answer();
  }
  reply_->send(std::move(answer));
}

}  // namespace weft::serve
