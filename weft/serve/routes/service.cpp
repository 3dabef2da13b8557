#include "weft/serve/routes/service.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "weft/core/error.h"
#include "weft/core/json.h"
#include "weft/core/log.h"
#include "weft/serve/api/api_error.h"
#include "weft/serve/api/fields.h"
#include "weft/serve/api/submit.h"
#include "weft/serve/embeddings/embeddings.h"
#include "weft/serve/page/page.h"
#include "weft/serve/responses/response_form.h"
#include "weft/serve/responses/response_request.h"

namespace weft::serve {
namespace {

using nlohmann::json;

// A step of any model takes less.
constexpr double kStuckSeconds = 60;

json body_of(const HttpRequest& request) {
  core::JsonLimits limits;
  limits.max_depth = 64;
  try {
    return core::parse_json(request.body, "body", limits);
  } catch (const core::FormatError& error) {
    throw ApiError(400, error_type_of(400), error.what());
  }
}

void send_json(const std::shared_ptr<HttpReply>& reply, const json& body) {
  HttpAnswer answer;
  answer.body = core::dump_json(body);
  reply->send(std::move(answer));
}

int64_t unix_seconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

// HEAD is GET whose body is not sent.
std::string_view answered_as(std::string_view method) { return method == "HEAD" ? "GET" : method; }

}  // namespace

struct Service::Route {
  std::string method, path;
  void (Service::*run)(const HttpRequest& request, const Reply& reply);
  bool needs_key = true;

  // Whether there is a text to read.
  bool takes_long() const { return method == "POST"; }
};

const std::vector<Service::Route>& Service::routes() {
  static const std::vector<Route> table = {
      {"GET", "/health", &Service::health, false},
      {"GET", "/v1/health", &Service::health, false},
      {"GET", "/metrics", &Service::metrics},
      {"GET", "/v1/models", &Service::models},
      {"GET", "/slots", &Service::slots},
      {"POST", "/tokenize", &Service::tokenize},
      {"POST", "/detokenize", &Service::detokenize},
      {"POST", "/v1/chat/completions", &Service::chat},
      {"POST", "/v1/completions", &Service::complete},
      {"POST", "/v1/embeddings", &Service::embed},
      {"POST", "/v1/responses", &Service::respond},
  };
  return table;
}

Service::Service(AccessOptions access, bool has_page, bool logs_json, size_t most_unread)
    : access_(std::move(access)), has_page_(has_page), metrics_(logs_json), reader_(most_unread) {}

void Service::open(ServedModel model) {
  auto completions = std::make_unique<Completions>(std::move(model), metrics_);
  const std::lock_guard lock(mutex_);
  completions_ = std::move(completions);
}

void Service::set_fault(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  fault_ = reason;
}

HttpAnswer Service::refusal(int status, const std::string& message) {
  metrics_.add_refused(status, message, "");
  return ApiError(status, error_type_of(status), message).answer();
}

void Service::stop() {
  reader_.stop();
  const std::lock_guard lock(mutex_);
  if (completions_ != nullptr) completions_->stop();
}

void Service::handle(const HttpRequest& request, const Reply& reply) noexcept {
  run(request, reply, [&] { dispatch(request, reply); });
}

// Does it, and answers with the error that it throws.
void Service::run(const HttpRequest& request, const Reply& reply,
                  const std::function<void()>& action) noexcept {
  const auto refuse_it = [&](const ApiError& error) { refuse(error, request.id, reply, metrics_); };
  try {
    action();
  } catch (const ApiError& error) {
    refuse_it(error);
  } catch (const core::ConfigError& error) {
    refuse_it(ApiError(400, error_type_of(400), error.what()));
  } catch (const std::exception& error) {
    refuse_it(ApiError::unexpected(error));
  }
}

// The page itself needs no key: it asks for one.
std::optional<HttpAnswer> Service::page(const HttpRequest& request) const {
  if (!has_page_ || answered_as(request.method) != "GET") return std::nullopt;
  return page_answer(request.path);
}

void Service::dispatch(const HttpRequest& request, const Reply& reply) {
  if (auto file = page(request)) {
    check_access(request, access_, false);
    return reply->send(std::move(*file));
  }
  const Route* found = nullptr;
  bool knows_path = false;
  for (const Route& route : routes()) {
    knows_path |= route.path == request.path;
    if (route.path == request.path && route.method == answered_as(request.method)) found = &route;
  }
  const bool is_preflight = request.method == "OPTIONS";
  check_access(request, access_, !is_preflight && (found == nullptr || found->needs_key));
  if (is_preflight) return reply->send(preflight_answer());
  if (found != nullptr && !found->takes_long()) return (this->*found->run)(request, reply);
  if (found != nullptr) {
    const auto shared = std::make_shared<const HttpRequest>(request);
    const auto read_and_answer = [this, found, shared, reply] {
      run(*shared, reply, [&] { (this->*found->run)(*shared, reply); });
    };
    if (!reader_.post(read_and_answer)) refuse_queue();
    return;
  }
  const int status = knows_path ? 405 : 404;
  throw ApiError(status, error_type_of(status),
                 core::join(core::quote(request.method), " ", core::quote(request.path),
                            ": no such ", knows_path ? "method for this path" : "path"));
}

Completions& Service::completions() const {
  const std::lock_guard lock(mutex_);
  if (!fault_.empty()) throw ApiError(503, error_type_of(503), fault_);
  if (completions_ == nullptr) {
    throw ApiError(503, error_type_of(503), "the model is being loaded");
  }
  return *completions_;
}

void Service::health(const HttpRequest& /*request*/, const Reply& reply) {
  const ServedModel& served = model();
  const std::string still = served.standstill ? served.standstill() : "";
  if (!still.empty()) throw ApiError(503, error_type_of(503), still);
  const SchedulerState state = served.scheduler->state();
  if (state.is_draining) throw ApiError(503, error_type_of(503), "the server is about to end");
  if (state.step_seconds > kStuckSeconds) {
    throw ApiError(503, error_type_of(503),
                   core::join("a step has taken ", state.step_seconds, " s"));
  }
  send_json(reply, {{"status", "ok"}});
}

void Service::metrics(const HttpRequest& /*request*/, const Reply& reply) {
  const Scheduler& scheduler = *model().scheduler;
  HttpAnswer answer;
  answer.content_type = "text/plain; version=0.0.4";
  answer.body = metrics_.text(scheduler.state(), scheduler.options());
  reply->send(std::move(answer));
}

void Service::models(const HttpRequest& /*request*/, const Reply& reply) {
  static const int64_t created = unix_seconds();
  const ServedModel& served = model();
  const auto model_of = [&](const std::string& name) -> json {
    return {{"id", name},
            {"object", "model"},
            {"created", created},
            {"owned_by", "weft"},
            {"max_model_len", served.scheduler->options().context}};
  };
  json list = json::array({model_of(served.name)});
  for (const std::string& adapter : served.adapters) {
    list.push_back(model_of(adapter));
    list.back()["parent"] = served.name;
  }
  send_json(reply, {{"object", "list"}, {"data", std::move(list)}});
}

// In llama-server's words, without anything of what clients say.
void Service::slots(const HttpRequest& /*request*/, const Reply& reply) {
  const Scheduler& scheduler = *model().scheduler;
  json list = json::array();
  for (const SlotState& slot : scheduler.state().slots) {
    const bool is_used = slot.number != 0;
    json each = {{"id", list.size()},
                 {"id_task", is_used ? json(slot.number) : json(-1)},
                 {"n_ctx", scheduler.options().context},
                 {"is_processing", is_used}};
    if (is_used) {
      each.update({{"n_prompt_tokens", slot.num_prompt},
                   {"n_prompt_tokens_processed", std::min(slot.num_kept, slot.num_prompt)},
                   {"n_prompt_tokens_cache", slot.num_reused},
                   {"n_decoded", slot.num_drawn}});
    }
    list.push_back(std::move(each));
  }
  send_json(reply, list);
}

void Service::tokenize(const HttpRequest& request, const Reply& reply) {
  const ServedModel& served = model();
  const json body = body_of(request);
  Fields fields(body);
  const auto content = fields.string("content");
  if (!content) throw ApiError::invalid("content", "missing, expected a text");
  const bool adds_special = fields.boolean("add_special").value_or(false);
  send_json(reply, {{"tokens", adds_special ? served.tokenizer.encode_whole(*content)
                                            : served.tokenizer.encode(*content)}});
}

void Service::detokenize(const HttpRequest& request, const Reply& reply) {
  const ServedModel& served = model();
  const json body = body_of(request);
  Fields fields(body);
  const json* const tokens = fields.get("tokens");
  if (tokens == nullptr || !tokens->is_array()) {
    throw ApiError::invalid("tokens", "expected a list of token ids");
  }
  std::vector<text::TokenId> ids;
  const auto most = static_cast<int64_t>(served.tokenizer.vocab_size()) - 1;
  for (const json& token : *tokens) {
    if (!token.is_number_integer() || token < 0 || token > most) {
      throw ApiError::invalid("tokens", core::join("expected ids from 0 to ", most));
    }
    ids.push_back(token.get<text::TokenId>());
  }
  send_json(reply, {{"content", served.tokenizer.decode(ids)}});
}

void Service::chat(const HttpRequest& request, const Reply& reply) {
  Completions& own = completions();
  CompletionRequest wanted = read_chat_request(body_of(request), request.body);
  wanted.client = client_of(request, access_);
  wanted.request_id = request.id;
  own.answer(std::move(wanted), reply);
}

void Service::complete(const HttpRequest& request, const Reply& reply) {
  Completions& own = completions();
  CompletionRequest wanted = read_completion_request(body_of(request), request.body);
  wanted.client = client_of(request, access_);
  wanted.request_id = request.id;
  own.answer(std::move(wanted), reply);
}

void Service::embed(const HttpRequest& request, const Reply& reply) {
  Completions& own = completions();
  EmbeddingRequest wanted = read_embedding_request(body_of(request));
  wanted.client = client_of(request, access_);
  wanted.request_id = request.id;
  own.warn_unknown(wanted.unknown);
  answer_embeddings(wanted, own.model(), own.prompts(), metrics_, reply);
}

void Service::respond(const HttpRequest& request, const Reply& reply) {
  Completions& own = completions();
  ResponseRequest wanted = read_response_request(body_of(request), request.body);
  wanted.completion.client = client_of(request, access_);
  wanted.completion.request_id = request.id;
  const Prompts& prompts = own.prompts();
  const std::string& name = prompts.model_name(prompts.adapter_of(wanted.completion.model));
  auto form = response_form(new_reply_head("resp_", true, name), wanted.echo);
  own.answer_as(std::move(form), std::move(wanted.completion), reply);
}

}  // namespace weft::serve
