#include "weft/serve/api/completions.h"

#include <algorithm>
#include <random>
#include <string_view>
#include <utility>
#include <variant>

#include "weft/core/error.h"
#include "weft/core/log.h"
#include "weft/serve/api/api_error.h"
#include "weft/serve/api/replies.h"
#include "weft/serve/api/submit.h"
#include "weft/serve/chat/call_marks.h"
#include "weft/serve/chat/member_text.h"
#include "weft/serve/chat/tool_family.h"

namespace weft::serve {
namespace {

// As OpenAI's completions have it.
constexpr int64_t kCompletionTokens = 16;

uint64_t random_number() {
  static thread_local std::mt19937_64 random{std::random_device{}()};
  return random();
}

uint64_t seed_of(const CompletionRequest& request, int64_t choice) {
  return request.seed ? static_cast<uint64_t>(*request.seed) + static_cast<uint64_t>(choice)
                      : random_number();
}

}  // namespace

void refuse(const ApiError& error, const std::string& request_id,
            const std::shared_ptr<HttpReply>& reply, Metrics& metrics) {
  metrics.add_refused(error.status(), error.what(), request_id);
  reply->send(error.answer());
}

Completions::Completions(ServedModel model, Metrics& metrics)
    : model_(std::move(model)),
      prompts_(model_),
      metrics_(metrics),
      grammars_(model_.tokenizer, model_.vocab_size),
      worker_(static_cast<size_t>(model_.scheduler->options().max_queue)) {
  if (!model_.chat_template) return;
  knows_tools_ = model_.chat_template->mentions("tools");
  // A template without tools is told of them in words, and of Hermes's form.
  if (knows_tools_) tool_format_ = tool_format_of(*model_.chat_template);
  note_marks();
}

void Completions::note_marks() {
  for (const std::string_view mark : marks_of(tool_family(tool_format_))) {
    const text::TokenId id = model_.tokenizer.find(mark);
    if (id < 0) continue;
    spelled_.push_back(id);
    if (model_.tokenizer.is_special(id)) special_marks_.emplace_back(mark, id);
  }
}

Completions::Tokens Completions::chat_prompt(const CompletionRequest& request) const {
  if (!model_.chat_template) {
    throw ApiError(400, error_type_of(400), "this model has no chat template; use /v1/completions");
  }
  size_t num_bytes = 0;
  for (const text::Message& message : request.messages) num_bytes += message.content.size();
  for (const Tool& tool : request.tools) num_bytes += tool.json.size();
  prompts_.check_bytes(num_bytes);
  const auto ids = model_.tokenizer.encode_chat(render(request));
  return {ids.begin(), ids.end()};
}

std::vector<text::ChatPiece> Completions::render(const CompletionRequest& request) const {
  const text::Tokenizer& tokenizer = model_.tokenizer;
  const auto spelling = [&](text::TokenId id) {
    return id < 0 ? std::string() : std::string(tokenizer.bytes(id));
  };
  text::ChatTemplate::Inputs inputs;
  inputs.messages =
      knows_tools_ ? request.messages : with_tools_in_words(request.messages, request.tools);
  inputs.bos_token = spelling(tokenizer.vocabulary().bos);
  inputs.eos_token = spelling(tokenizer.vocabulary().eos);
  inputs.names = request.template_names;
  if (knows_tools_) {
    const bool wants_functions = model_.chat_template->has_tools_in_messages();
    for (const Tool& tool : request.tools) {
      const auto function =
          wants_functions ? member_text(tool.json, {"function"}) : std::optional<std::string>();
      inputs.tools.push_back(function.value_or(tool.json));
    }
  }
  try {
    return model_.chat_template->render(inputs);
  } catch (const core::FormatError& error) {
    throw ApiError(400, error_type_of(400), error.what());
  }
}

AnswerParser::Options Completions::parsing_of(const CompletionRequest& request) const {
  AnswerParser::Options parsing;
  if (!request.is_chat) return parsing;
  parsing.format = tool_format_;
  parsing.parses_calls = !request.tools.empty();
  for (const Tool& tool : request.tools) {
    parsing.functions.push_back(tool.name);
    parsing.parameters.push_back(tool.parameters);
  }
  parsing.begins_in_calls =
      parsing.parses_calls && request.tool_choice.kind == ToolChoice::Kind::kRequired;
  const std::string_view think = tool_family(tool_format_).think_begin;
  if (think.empty() || !model_.chat_template->mentions(think)) return parsing;
  std::string prompt;
  for (const text::ChatPiece& piece : render(request)) prompt += piece.text;
  parsing.begins_in_reasoning = stripped(prompt).ends_with(think);
  return parsing;
}

// Grammars that hold in a part of the answer: calls that have to come, or whose arguments have to
// keep to their schemas, and words behind reasoning or beside calls.
void Completions::add_structural_tag(bool begins_in_reasoning, CompletionRequest& request) const {
  std::optional<grammar::Source>& grammar = request.options.grammar;
  const bool is_required = request.tool_choice.kind == ToolChoice::Kind::kRequired;
  const bool has_tools = !request.tools.empty();
  const bool is_strict =
      tool_format_ == ToolFormat::kHermes && std::ranges::any_of(request.tools, &Tool::is_strict);
  if (!grammar && !(has_tools && (is_required || is_strict))) return;
  if (request.options.ignores_end) {
    throw ApiError::invalid("ignore_eos", "with tools whose calls end; leave one of them out");
  }
  TagOptions options{special_marks_, begins_in_reasoning, ""};
  if (grammar && !is_required) {
    const bool is_whole = !has_tools && !begins_in_reasoning;
    if (is_whole && tool_format_ != ToolFormat::kHarmony) return;
    if (has_tools && !has_marked_calls(tool_format_)) {
      throw ApiError::invalid(request.grammar_field,
                              "beside tools, whose calls this model writes without a mark, "
                              "expected tool_choice none or required; leave one of them out");
    }
    options.words = format_of(*grammar);
  }
  grammar = {grammar::Form::kStructuralTag,
             structural_tag_of(tool_format_, request.tools, request.tool_choice, options)};
}

std::vector<Completions::Tokens> Completions::prompts_of(const CompletionRequest& request) const {
  std::vector<Tokens> prompts;
  if (request.is_chat) prompts.push_back(chat_prompt(request));
  for (const PromptInput& input : request.prompts) prompts.push_back(prompts_.to_continue(input));
  for (const Tokens& prompt : prompts) prompts_.check(prompt, "prompt");
  return prompts;
}

void Completions::check_biases(const generate::SamplerOptions& options) const {
  for (const generate::TokenBias& each : options.logit_bias) {
    if (each.token < model_.vocab_size) continue;
    throw ApiError::invalid(
        "logit_bias", core::join("token ", each.token, ", expected 0 to ", model_.vocab_size - 1));
  }
}

// What an echo begins with: a text as it was given, without what the tokenizer puts before it.
std::string Completions::text_of(const PromptInput& input) const {
  if (const auto* given = std::get_if<std::string>(&input)) return *given;
  std::string text;
  for (const int64_t token : std::get<Tokens>(input)) {
    if (token >= static_cast<int64_t>(model_.tokenizer.vocab_size())) continue;
    text += model_.tokenizer.bytes(static_cast<text::TokenId>(token));
  }
  return text;
}

void Completions::warn_unknown(const std::vector<std::string>& names) {
  constexpr size_t kMostNames = 64;
  for (const std::string& name : names) {
    const bool is_known = std::ranges::find(warned_, name) != warned_.end();
    if (is_known || warned_.size() >= kMostNames) continue;
    warned_.push_back(name);
    core::log(core::LogLevel::kWarn, "serve: requests have a field ", core::quote(name),
              ", which means nothing here");
  }
}

void Completions::answer(CompletionRequest request, const std::shared_ptr<HttpReply>& reply) {
  const char* const prefix = request.is_chat ? "chatcmpl-" : "cmpl-";
  const std::string& name = prompts_.model_name(prompts_.adapter_of(request.model));
  ReplyHead head = new_reply_head(prefix, request.is_chat, name);
  head.fingerprint = model_.fingerprint;
  auto form = completion_form(std::move(head), request.includes_usage, model_.tokenizer);
  answer_as(std::move(form), std::move(request), reply);
}

void Completions::answer_as(std::unique_ptr<ReplyForm> form, CompletionRequest request,
                            const std::shared_ptr<HttpReply>& reply) {
  warn_unknown(request.unknown);
  if (request.has_effort && model_.chat_template &&
      !model_.chat_template->mentions("reasoning_effort")) {
    warn_unknown({"reasoning_effort"});
  }
  check_biases(request.options.generate.sampler);
  const int64_t most = request.is_chat ? model_.scheduler->options().context : kCompletionTokens;
  request.options.generate.max_tokens = request.max_tokens.value_or(most);
  const std::vector<Tokens> prompts = prompts_of(request);
  AnswerParser::Options parsing = parsing_of(request);
  if (request.is_chat) {
    request.options.spelled = spelled_;
    add_structural_tag(parsing.begins_in_reasoning, request);
  }
  const auto own_answer =
      std::make_shared<Answer>(request, std::move(form), reply,
                               Answer::Context{metrics_, std::move(parsing), request.request_id});
  Job job = job_of(own_answer, request, prompts);
  request.options.grammar ? submit_with_grammar(std::move(job), request.grammar_field, reply)
                          : submit(std::move(job), reply);
}

Completions::Job Completions::job_of(const std::shared_ptr<Answer>& answer,
                                     const CompletionRequest& request,
                                     const std::vector<Tokens>& prompts) const {
  const int64_t adapter = prompts_.adapter_of(request.model);
  Job job;
  job.request_id = request.request_id;
  job.answer = answer;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const Tokens& prompt = prompts[i];
    job.usage.num_prompt += std::ssize(prompt);
    for (int64_t choice = 0; choice < request.num_choices; ++choice) {
      SequenceRequest sequence{prompt, request.options};
      sequence.options.generate.sampler.seed = seed_of(request, choice);
      sequence.client = request.client;
      sequence.adapter = adapter;
      job.first_texts.push_back(request.echoes ? text_of(request.prompts[i]) : "");
      const auto sink = [answer = job.answer, index = job.sequences.size()](
                            const SequenceEvent& event) { answer->take(index, event); };
      job.sequences.emplace_back(std::move(sequence), sink);
    }
  }
  return job;
}

void Completions::submit(Job job, const std::shared_ptr<HttpReply>& reply) const {
  Scheduler& scheduler = *model_.scheduler;
  const auto submit = [&] { return submit_all(scheduler, std::move(job.sequences)); };
  cancel_when_gone(scheduler, job.answer->start(job.first_texts, job.usage, submit), reply);
}

void Completions::submit_with_grammar(Job job, const std::string& field,
                                      const std::shared_ptr<HttpReply>& reply) {
  const auto compile_and_submit = [this, reply, field,
                                   job = std::make_shared<Job>(std::move(job))] {
    const auto refuse_it = [&](const ApiError& error) {
      refuse(error, job->request_id, reply, metrics_);
    };
    try {
      const auto grammar = grammars_.compile(*job->sequences.front().first.options.grammar);
      for (auto& [sequence, sink] : job->sequences) {
        sequence.options.generate.sampler.grammar = grammar;
      }
      submit(std::move(*job), reply);
    } catch (const ApiError& error) {
      refuse_it(error);
    } catch (const core::ConfigError& error) {
      refuse_it(ApiError::invalid(field, error.what()));
    } catch (const std::exception& error) {
      refuse_it(ApiError::unexpected(error));
    }
  };
  if (!worker_.post(compile_and_submit)) refuse_queue();
}

}  // namespace weft::serve
