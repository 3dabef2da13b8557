// The body of a request to `weft serve`, as a chat, a completion, a response and texts to embed;
// and its lines as the header fields that decide who may ask.
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/fuzz/fuzz.h"
#include "weft/core/json.h"
#include "weft/serve/api/access.h"
#include "weft/serve/api/api_error.h"
#include "weft/serve/api/completion_request.h"
#include "weft/serve/embeddings/embedding_request.h"
#include "weft/serve/responses/response_request.h"

namespace {

using namespace weft;

// Runs `action`, which may refuse; the answer to a refusal is JSON with a message of one line.
void ask(const std::function<void()>& action) {
  testing::run_input([&] {
    try {
      action();
    } catch (const serve::ApiError& error) {
      const serve::HttpAnswer answer = error.answer();
      const auto message = nlohmann::json::parse(answer.body).at("error").at("message");
      testing::expect(answer.status >= 400 && answer.status < 500, "a refusal is the client's");
      testing::expect(!message.get<std::string>().empty(), "a refusal says why");
      testing::expect(message.get<std::string>().find('\n') == std::string::npos,
                      "a refusal is one line");
    }
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  testing::run_input([&] {
    const core::Json body = core::parse_json(bytes, "body");
    ask([&] { serve::read_chat_request(body, bytes); });
    ask([&] { serve::read_completion_request(body, bytes); });
    ask([&] { serve::read_response_request(body, bytes); });
    ask([&] { serve::read_embedding_request(body); });
  });
  serve::HttpRequest request;
  std::istringstream lines(bytes);
  for (std::string* field : {&request.host, &request.origin, &request.authorization}) {
    std::getline(lines, *field);
  }
  const serve::AccessOptions options = {{"a key"}, {"https://example.org"}, true};
  ask([&] {
    serve::check_access(request, options, true);
    testing::expect(request.authorization == "Bearer a key", "only a key lets somebody in");
    testing::expect(request.origin.empty() || request.origin == "https://example.org",
                    "no foreign page is let in");
  });
  serve::cors_fields(request, options);
  return 0;
}
