#include "weft/serve/embeddings/embedding_request.h"

#include <nlohmann/json.hpp>

#include "weft/core/error.h"
#include "weft/serve/api/api_error.h"
#include "weft/serve/api/fields.h"

namespace weft::serve {
namespace {

// As many as OpenAI's API takes.
constexpr size_t kMostInputs = 2048;

}  // namespace

EmbeddingRequest read_embedding_request(const nlohmann::json& body) {
  EmbeddingRequest request;
  Fields fields(body);
  request.model = fields.string("model").value_or("");
  request.inputs = read_inputs(fields, "input", kMostInputs);
  const std::string format = fields.string("encoding_format").value_or("float");
  request.is_base64 = format == "base64";
  if (format != "float" && format != "base64") {
    throw ApiError::invalid("encoding_format",
                            core::join("got ", core::quote(format), ", expected float or base64"));
  }
  // To cut a vector is right only for models that were trained to be cut.
  fields.refuse_unless("dimensions", nullptr);
  fields.get("user");
  request.unknown = fields.unknown();
  return request;
}

}  // namespace weft::serve
