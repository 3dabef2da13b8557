#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "weft/serve/api/answer.h"
#include "weft/serve/api/api_error.h"
#include "weft/serve/api/completion_request.h"
#include "weft/serve/api/metrics.h"
#include "weft/serve/api/prompts.h"
#include "weft/serve/api/served_model.h"
#include "weft/serve/api/worker.h"
#include "weft/serve/http/server.h"
#include "weft/text/chat_template.h"

namespace weft::serve {

/// Answers the request of that id with an error, and counts it.
void refuse(const ApiError& error, const std::string& request_id,
            const std::shared_ptr<HttpReply>& reply, Metrics& metrics);

/// Makes sequences of requests and answers of sequences. Its methods are for one thread.
class Completions {
 public:
  /// `metrics` must outlive this.
  Completions(ServedModel model, Metrics& metrics);

  const ServedModel& model() const { return model_; }
  const Prompts& prompts() const { return prompts_; }
  /// Queues the request's sequences, whose answer comes by and by; a grammar is compiled before, on
  /// another thread, and one that is wrong gets 400. Throws ApiError: 404 for another
  /// model's name, 400 for a prompt that does not fit, 429 while too many wait, 503 at the end.
  void answer(CompletionRequest request, const std::shared_ptr<HttpReply>& reply);
  /// The same in another form.
  void answer_as(std::unique_ptr<ReplyForm> form, CompletionRequest request,
                 const std::shared_ptr<HttpReply>& reply);
  /// Logs names of fields that mean nothing here, each of them once.
  void warn_unknown(const std::vector<std::string>& names);
  /// Grammars that are being compiled are dropped, with their requests. For any thread.
  void stop() { worker_.stop(); }

 private:
  using Tokens = Prompts::Tokens;

  std::vector<text::ChatPiece> render(const CompletionRequest& request) const;
  Tokens chat_prompt(const CompletionRequest& request) const;
  AnswerParser::Options parsing_of(const CompletionRequest& request) const;
  void note_marks();
  void add_structural_tag(bool begins_in_reasoning, CompletionRequest& request) const;
  std::vector<Tokens> prompts_of(const CompletionRequest& request) const;
  void check_biases(const generate::SamplerOptions& options) const;
  std::string text_of(const PromptInput& input) const;
  /// What is queued for a request, and who tells its client.
  struct Job {
    std::shared_ptr<Answer> answer;
    std::string request_id;
    std::vector<std::string> first_texts;
    Usage usage;
    std::vector<std::pair<SequenceRequest, SequenceSink>> sequences;
  };
  Job job_of(const std::shared_ptr<Answer>& answer, const CompletionRequest& request,
             const std::vector<Tokens>& prompts) const;
  void submit(Job job, const std::shared_ptr<HttpReply>& reply) const;
  void submit_with_grammar(Job job, const std::string& field,
                           const std::shared_ptr<HttpReply>& reply);

  ServedModel model_;
  Prompts prompts_;
  Metrics& metrics_;
  ToolFormat tool_format_ = ToolFormat::kHermes;
  /// Whether the template says tools itself.
  bool knows_tools_ = false;
  /// Special tokens that the parts of a chat's answer are told by.
  std::vector<int64_t> spelled_;
  std::vector<std::pair<std::string, int64_t>> special_marks_;
  std::vector<std::string> warned_;
  grammar::Compiler grammars_;
  /// Compiles grammars; ends before what it uses.
  Worker worker_;
};

}  // namespace weft::serve
