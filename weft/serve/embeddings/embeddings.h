#pragma once

#include <memory>
#include <string>

#include "weft/serve/api/metrics.h"
#include "weft/serve/api/prompts.h"
#include "weft/serve/api/served_model.h"
#include "weft/serve/embeddings/embedding_request.h"
#include "weft/serve/http/server.h"

namespace weft::serve {

/// The letters of RFC 4648, section 4.
std::string base64_text(const std::string& bytes);

/// Queues a sequence for each input, whose vectors are answered when all are there. Throws
/// ApiError as Prompts, 400 for more numbers than an answer may have, 429 while too many wait, 503
/// at the end. `metrics` outlives the answer.
void answer_embeddings(const EmbeddingRequest& request, const ServedModel& model,
                       const Prompts& prompts, Metrics& metrics,
                       const std::shared_ptr<HttpReply>& reply);

}  // namespace weft::serve
