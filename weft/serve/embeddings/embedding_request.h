#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "weft/serve/api/prompts.h"

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

}  // namespace weft::serve
