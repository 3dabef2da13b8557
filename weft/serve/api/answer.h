#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "weft/serve/api/completion_request.h"
#include "weft/serve/api/metrics.h"
#include "weft/serve/api/replies.h"
#include "weft/serve/chat/answer_parser.h"
#include "weft/serve/engine/sequence.h"
#include "weft/serve/http/server.h"

namespace weft::serve {

/// Turns the events of a request's sequences into its answer, as a stream or whole, and counts
/// them. Events may come on another thread than the one that made it.
class Answer {
 public:
  /// What an answer needs beside its request; what is not copied outlives it.
  struct Context {
    Metrics& metrics;
    /// Of a chat's choices.
    AnswerParser::Options parsing = {};
    /// As RequestRecord has it.
    std::string request_id = {};
  };
  Answer(const CompletionRequest& request, std::unique_ptr<ReplyForm> form,
         std::shared_ptr<HttpReply> reply, const Context& context);

  /// Calls `submit`, which queues a sequence for each of `first_texts`, with which choices begin,
  /// or throws, and begins the answer once they are queued. Events wait until it has. Returns what
  /// `submit` does: the sequences' numbers.
  std::vector<uint64_t> start(const std::vector<std::string>& first_texts, const Usage& usage,
                              const std::function<std::vector<uint64_t>()>& submit);
  void take(size_t choice, const SequenceEvent& event);

 private:
  using Clock = std::chrono::steady_clock;

  void begin(const std::vector<std::string>& first_texts);
  void note_token(size_t choice);
  Choice news_of(size_t choice, const SequenceEvent& event);
  void send(size_t choice, const Choice& news);
  SequenceEnd end_of_all() const;
  void finish();
  void finish_stream();
  void finish_whole();

  std::unique_ptr<ReplyForm> form_;
  std::shared_ptr<HttpReply> reply_;
  Context context_;
  bool is_chat_, is_stream_, tells_logprobs_;
  /// False: of a model's calls the first is told alone.
  bool is_parallel_;
  /// Of each prompt.
  size_t num_choices_;
  Clock::time_point start_ = Clock::now();

  std::mutex mutex_;
  std::vector<Choice> choices_;
  std::vector<AnswerParser> parsers_;
  /// Of each choice: when its last token came, and how many it has.
  std::vector<Clock::time_point> last_token_;
  std::vector<int64_t> num_drawn_;
  /// Of each choice: calls that have begun.
  std::vector<size_t> num_calls_;
  /// Of the choice that got one first.
  std::optional<double> first_token_seconds_;
  Usage usage_;
  size_t num_ended_ = 0;
  std::string error_;
};

}  // namespace weft::serve
