#include "weft/serve/batch/batch_file.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "weft/core/error.h"
#include "weft/core/json.h"
#include "weft/serve/chat/member_text.h"

namespace weft::serve {
namespace {

using core::check;
using core::FormatError;
using nlohmann::json;

// How batch_line's begin, whose members are sorted.
constexpr std::string_view kLineBegin = "{\"custom_id\":";

// Calls `read` with each line that is not empty and the place that messages name.
void for_each_line(std::string_view text, const std::string& where,
                   const std::function<void(std::string_view, int64_t, const std::string&)>& read) {
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    read(line, number, core::join(where, ": line ", number));
  }
}

// `text`, a body's, with what it does not say; its members stay in their order, which a schema's
// answers follow.
std::string with_defaults(const json& body, std::string text, const BatchDefaults& defaults) {
  json missing = json::object();
  if (!body.contains("max_tokens") && !body.contains("max_completion_tokens")) {
    missing["max_tokens"] = defaults.max_tokens;
  }
  if (!body.contains("temperature")) missing["temperature"] = defaults.temperature;
  if (!body.contains("seed") && defaults.seed) missing["seed"] = *defaults.seed;
  if (missing.empty()) return text;
  text.erase(text.rfind('}'));
  return text + "," + core::dump_json(missing).substr(1);
}

std::string text_of(const json& line, const std::string& key, const std::string& where) {
  return core::to_string(core::require(line, key, where), core::join(where, ": ", key));
}

// A line in the form of OpenAI's batches.
BatchRequest whole_request(const json& line, std::string_view text, const std::string& where) {
  BatchRequest request;
  request.id = text_of(line, "custom_id", where);
  request.http.method = text_of(line, "method", where);
  request.http.path = text_of(line, "url", where);
  const json& body = core::require(line, "body", where);
  check<FormatError>(request.http.method == "POST", where, ": method ",
                     core::quote(request.http.method), ", expected \"POST\"");
  check<FormatError>(body.is_object(), where, ": body: expected an object");
  request.http.body = member_text(text, {"body"}).value_or(core::dump_json(body));
  return request;
}

BatchRequest request_of(const json& line, std::string_view text, int64_t number,
                        const std::string& where, const BatchDefaults& defaults) {
  if (line.is_object() && line.contains("body")) return whole_request(line, text, where);
  BatchRequest request;
  request.id = core::join("request-", number);
  request.http.method = "POST";
  const bool is_chat = line.is_object() && line.contains("messages");
  check<FormatError>(line.is_string() || is_chat || (line.is_object() && line.contains("prompt")),
                     where, ": no request, expected a prompt, or an object with prompt, messages, ",
                     "or custom_id, method, url and body");
  request.http.path = is_chat ? "/v1/chat/completions" : "/v1/completions";
  const json body = line.is_string() ? json{{"prompt", line}} : line;
  request.http.body =
      with_defaults(body, line.is_string() ? core::dump_json(body) : std::string(text), defaults);
  return request;
}

bool asks_for_stream(const json& line) {
  if (!line.is_object()) return false;
  const json& body = line.contains("body") ? line["body"] : line;
  return body.is_object() && body.value("stream", json()) == true;
}

}  // namespace

std::vector<BatchRequest> read_batch(const std::string& text, const std::string& where,
                                     const BatchDefaults& defaults) {
  std::vector<BatchRequest> requests;
  std::set<std::string> ids;
  for_each_line(text, where, [&](std::string_view bytes, int64_t number, const std::string& place) {
    const json line = core::parse_json(bytes, place);
    check<FormatError>(!asks_for_stream(line), place,
                       ": stream: true, expected answers as a whole; leave it out");
    BatchRequest request = request_of(line, bytes, number, place, defaults);
    check<FormatError>(ids.insert(request.id).second, place, ": custom_id ",
                       core::quote(request.id), ", expected one that no other line has");
    requests.push_back(std::move(request));
  });
  check<FormatError>(!requests.empty(), where, ": no request, expected one in each line");
  return requests;
}

std::string batch_line(const std::string& id, uint64_t number, const HttpAnswer& answer) {
  const json body = json::parse(answer.body, nullptr, false);
  const json line = {
      {"id", core::join("batch_req_", number)},
      {"custom_id", id},
      {"response",
       {{"status_code", answer.status},
        {"request_id", core::join("req_", number)},
        {"body", body.is_discarded() ? json(answer.body) : body}}},
      {"error", nullptr},
  };
  return core::dump_json(line) + "\n";
}

BatchAnswered read_answered(const std::string& text, const std::string& where) {
  BatchAnswered answered;
  const size_t end = text.rfind('\n') + 1;
  const std::string_view whole = std::string_view(text).substr(0, end);
  const std::string_view rest = std::string_view(text).substr(end);
  check<FormatError>(rest.starts_with(kLineBegin) || kLineBegin.starts_with(rest), where,
                     ": its last line is no answer of a batch; choose another file");
  for_each_line(whole, where, [&](std::string_view bytes, int64_t, const std::string& place) {
    const json line = core::parse_json(bytes, place);
    const std::string id = text_of(line, "custom_id", place);
    const json& response = core::require(line, "response", place);
    const json& status = core::require(response, "status_code", place + ": response");
    if (core::to_int64(status, place + ": status_code") != 200) return;
    answered.ids.push_back(id);
    answered.lines += std::string(bytes) + "\n";
  });
  return answered;
}

}  // namespace weft::serve
