#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "weft/serve/api/metrics.h"
#include "weft/serve/api/prompts.h"
#include "weft/serve/api/served_model.h"
#include "weft/serve/http/server.h"

namespace weft::serve {

/// What /v1/embeddings is asked for.
struct EmbeddingRequest {
  /// As SequenceRequest and HttpRequest have them; not the body's.
  size_t client = 0;
  std::string request_id;
  /// Empty: whichever is served.
  std::string model;
  std::vector<PromptInput> inputs;
  /// Bytes of float32, the lowest first, in base64; else lists of numbers.
  bool is_base64 = false;
  /// Fields that mean nothing here.
  std::vector<std::string> unknown;
};

/// Reads a request's body. Throws ApiError, 400, naming the field.
EmbeddingRequest read_embedding_request(const nlohmann::json& body);

/// The letters of RFC 4648, section 4.
std::string base64_text(const std::string& bytes);

/// Queues a sequence for each input, whose vectors are answered when all are there. Throws
/// ApiError as Prompts, 400 for more numbers than an answer may have, 429 while too many wait, 503
/// at the end. `metrics` outlives the answer.
void answer_embeddings(const EmbeddingRequest& request, const ServedModel& model,
                       const Prompts& prompts, Metrics& metrics,
                       const std::shared_ptr<HttpReply>& reply);

}  // namespace weft::serve
