#include "weft/serve/responses/response_form.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "weft/core/error.h"
#include "weft/core/json.h"

namespace weft::serve {
namespace {

using nlohmann::json;

// The two kinds of items that are told piece by piece.
struct TextKind {
  const char *type, *prefix, *part_type, *events;
};
constexpr TextKind kMessage = {"message", "msg_", "output_text", "response.output_text."};
constexpr TextKind kReasoning = {"reasoning", "rs_", "reasoning_text", "response.reasoning_text."};

json part_json(const TextKind& kind, const std::string& text) {
  json part = {{"type", kind.part_type}, {"text", text}};
  if (&kind == &kMessage)
    part.update({{"annotations", json::array()}, {"logprobs", json::array()}});
  return part;
}

json item_json(const TextKind& kind, const std::string& id, const char* status, json parts) {
  json item = {{"type", kind.type}, {"id", id}, {"status", status}, {"content", std::move(parts)}};
  if (&kind == &kMessage) {
    item["role"] = "assistant";
  } else {
    item["summary"] = json::array();
  }
  return item;
}

json call_json(const text::ToolCall& call, const char* status, const std::string& arguments) {
  return {{"type", "function_call"}, {"id", "fc_" + call.id},  {"call_id", call.id},
          {"name", call.name},       {"arguments", arguments}, {"status", status}};
}

json response_usage(const Usage& usage) {
  return {{"input_tokens", usage.num_prompt},
          {"input_tokens_details", {{"cached_tokens", usage.num_reused}}},
          {"output_tokens", usage.num_drawn},
          {"output_tokens_details", {{"reasoning_tokens", 0}}},
          {"total_tokens", usage.num_prompt + usage.num_drawn}};
}

bool is_whole_json(const std::string& arguments) { return json::accept(arguments); }

enum class AnswerPart { kNone, kReasoning, kWords, kCall };

// Which part of an answer its length has cut.
AnswerPart cut_part(const Choice& choice) {
  if (!choice.calls.empty() && !is_whole_json(choice.calls.back().arguments))
    return AnswerPart::kCall;
  if (!choice.text.empty()) return AnswerPart::kWords;
  return choice.calls.empty() ? AnswerPart::kReasoning : AnswerPart::kNone;
}

class ResponseForm : public ReplyForm {
 public:
  ResponseForm(ReplyHead head, json echo) : head_(std::move(head)), echo_(std::move(echo)) {}

  const std::string& id() const override { return head_.id; }

  std::string begin_stream(const std::vector<std::string>& /*first_texts*/) override {
    const json begun = response("in_progress", nullptr);
    std::string events = event("response.created", {{"response", begun}});
    events += event("response.in_progress", {{"response", begun}});
    return events;
  }

  std::string stream_news(size_t /*index*/, const Choice& news) override {
    // What goes on with the open call comes before its words: these end the call.
    const auto first_new = std::ranges::find_if(
        news.calls, [](const text::ToolCall& call) { return !call.name.empty(); });
    std::string events;
    for (auto call = news.calls.begin(); call != first_new; ++call) events += call_events(*call);
    if (!news.reasoning.empty()) events += text_events(kReasoning, news.reasoning);
    if (!news.text.empty()) events += text_events(kMessage, news.text);
    for (auto call = first_new; call != news.calls.end(); ++call) events += call_events(*call);
    return events;
  }

  std::string end_stream(const std::vector<Choice>& choices, const Usage& usage,
                         const std::string& error) override {
    const bool is_cut = choices.front().end == SequenceEnd::kLength;
    const bool is_whole_call = open_call_ && is_whole_json(open_call_->arguments);
    const bool is_open = (is_cut || !error.empty()) && !is_whole_call;
    std::string events = close(is_open ? "incomplete" : "completed");
    if (!error.empty()) {
      json failed = response("failed", usage);
      failed["error"] = {{"code", "server_error"}, {"message", error}};
      return events + event("response.failed", {{"response", std::move(failed)}});
    }
    return events + event(is_cut ? "response.incomplete" : "response.completed",
                          {{"response", ended(is_cut, usage)}});
  }

  std::string whole(const std::vector<Choice>& choices, const Usage& usage) override {
    const Choice& choice = choices.front();
    const bool is_cut = choice.end == SequenceEnd::kLength;
    const AnswerPart cut = is_cut ? cut_part(choice) : AnswerPart::kNone;
    const auto add = [&](AnswerPart part, const TextKind& kind, const std::string& text) {
      if (text.empty()) return;
      const char* const status = part == cut ? "incomplete" : "completed";
      output_.push_back(item_json(kind, next_id(kind), status, {part_json(kind, text)}));
    };
    add(AnswerPart::kReasoning, kReasoning, choice.reasoning);
    add(AnswerPart::kWords, kMessage, choice.text);
    for (size_t i = 0; i < choice.calls.size(); ++i) {
      const bool is_cut_call = cut == AnswerPart::kCall && i + 1 == choice.calls.size();
      const text::ToolCall& call = choice.calls[i];
      output_.push_back(call_json(call, is_cut_call ? "incomplete" : "completed", call.arguments));
    }
    return core::dump_json(ended(is_cut, usage));
  }

 private:
  std::string next_id(const TextKind& kind) const {
    return core::join(kind.prefix, head_.id.substr(head_.id.find('_') + 1), "_", output_.size());
  }

  json response(const char* status, const json& usage) const {
    json object = echo_;
    object.update({{"id", head_.id},
                   {"object", "response"},
                   {"created_at", head_.created},
                   {"status", status},
                   {"background", false},
                   {"error", nullptr},
                   {"incomplete_details", nullptr},
                   {"model", head_.model},
                   {"output", output_},
                   {"previous_response_id", nullptr},
                   {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
                   {"store", false},
                   {"truncation", "disabled"},
                   {"usage", usage}});
    return object;
  }

  json response(const char* status, const Usage& usage) const {
    return response(status, response_usage(usage));
  }

  json ended(bool is_cut, const Usage& usage) const {
    json object = response(is_cut ? "incomplete" : "completed", usage);
    if (is_cut) object["incomplete_details"] = {{"reason", "max_output_tokens"}};
    return object;
  }

  std::string event(const std::string& type, json members) {
    members["type"] = type;
    members["sequence_number"] = num_events_++;
    return "event: " + type + "\ndata: " + core::dump_json(members) + "\n\n";
  }

  std::string event_of_part(const std::string& type, json members) {
    members.update({{"item_id", open_id_}, {"output_index", output_.size()}, {"content_index", 0}});
    return event(type, std::move(members));
  }

  std::string text_events(const TextKind& kind, const std::string& text) {
    std::string events;
    if (open_ != &kind) {
      events = close("completed");
      open_ = &kind;
      open_id_ = next_id(kind);
      events += event("response.output_item.added",
                      {{"output_index", output_.size()},
                       {"item", item_json(kind, open_id_, "in_progress", json::array())}});
      events += event_of_part("response.content_part.added", {{"part", part_json(kind, "")}});
    }
    open_text_ += text;
    json delta = {{"delta", text}};
    if (&kind == &kMessage) delta["logprobs"] = json::array();
    return events + event_of_part(core::join(kind.events, "delta"), std::move(delta));
  }

  // Ends the item that is being told, if there is one.
  std::string close(const char* status) {
    if (open_call_) return close_call(status);
    if (open_ == nullptr) return "";
    const TextKind& kind = *std::exchange(open_, nullptr);
    const json part = part_json(kind, open_text_);
    json done = {{"text", open_text_}};
    if (&kind == &kMessage) done["logprobs"] = json::array();
    std::string events = event_of_part(core::join(kind.events, "done"), std::move(done));
    events += event_of_part("response.content_part.done", {{"part", part}});
    open_text_.clear();
    return events + finish_item(item_json(kind, open_id_, status, {part}));
  }

  std::string finish_item(json item) {
    std::string events =
        event("response.output_item.done", {{"output_index", output_.size()}, {"item", item}});
    output_.push_back(std::move(item));
    return events;
  }

  json place_of_call() const {
    return {{"item_id", "fc_" + open_call_->id}, {"output_index", output_.size()}};
  }

  // A call without a name goes on with the arguments of the open one.
  std::string call_events(const text::ToolCall& call) {
    std::string events;
    if (!call.name.empty() || !open_call_) {
      events = close("completed");
      open_call_ = text::ToolCall{call.id, call.name, ""};
      events += event("response.output_item.added", {{"output_index", output_.size()},
                                                     {"item", call_json(call, "in_progress", "")}});
    }
    if (call.arguments.empty()) return events;
    open_call_->arguments += call.arguments;
    json delta = place_of_call();
    delta["delta"] = call.arguments;
    return events + event("response.function_call_arguments.delta", std::move(delta));
  }

  std::string close_call(const char* status) {
    json done = place_of_call();
    const text::ToolCall call = *std::exchange(open_call_, std::nullopt);
    done.update({{"arguments", call.arguments}, {"name", call.name}});
    const std::string events = event("response.function_call_arguments.done", std::move(done));
    return events + finish_item(call_json(call, status, call.arguments));
  }

  ReplyHead head_;
  json echo_;
  /// Items that are complete.
  json output_ = json::array();
  /// The item that is being told; null: none.
  const TextKind* open_ = nullptr;
  std::string open_id_, open_text_;
  std::optional<text::ToolCall> open_call_;
  int64_t num_events_ = 0;
};

}  // namespace

std::unique_ptr<ReplyForm> response_form(ReplyHead head, json echo) {
  return std::make_unique<ResponseForm>(std::move(head), std::move(echo));
}

}  // namespace weft::serve
