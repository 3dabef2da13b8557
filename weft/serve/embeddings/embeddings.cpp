#include "weft/serve/embeddings/embeddings.h"

#include <array>
#include <bit>
#include <charconv>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "weft/core/clock.h"
#include "weft/core/error.h"
#include "weft/core/json.h"
#include "weft/serve/api/api_error.h"
#include "weft/serve/api/replies.h"
#include "weft/serve/api/submit.h"

namespace weft::serve {
namespace {

using nlohmann::json;

// For at most 64 MiB of text.
constexpr int64_t kMostNumbers = int64_t{4} << 20;

std::string bytes_of(const std::vector<float>& vector) {
  std::string bytes;
  for (const float number : vector) {
    const auto bits = std::bit_cast<uint32_t>(number);
    for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(bits >> shift & 0xff);
  }
  return bytes;
}

// The shortest digits that name each number.
std::string list_text(const std::vector<float>& vector) {
  std::string text = "[";
  std::array<char, 32> digits = {};
  for (const float number : vector) {
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
    if (text.size() > 1) text += ',';
    text.append(digits.data(), end);
  }
  return text + "]";
}

// Collects the vectors of one request. Events come on the thread of the steps alone.
class Collected {
 public:
  Collected(const EmbeddingRequest& request, std::string model, Metrics& metrics,
            std::shared_ptr<HttpReply> reply)
      : is_base64_(request.is_base64),
        id_(new_reply_head("embd-", false, model).id),
        request_id_(request.request_id),
        model_(std::move(model)),
        metrics_(metrics),
        reply_(std::move(reply)),
        vectors_(request.inputs.size()) {}

  void count_tokens(int64_t tokens) { num_tokens_ += tokens; }

  void take(size_t index, const SequenceEvent& event) {
    if (!event.end) return;
    vectors_[index] = event.embedding;
    num_reused_ += event.num_reused;
    if (event.end == SequenceEnd::kCancelled) is_cancelled_ = true;
    if (!event.error.empty()) error_ = event.error;
    if (++num_ended_ == vectors_.size()) finish();
  }

 private:
  void finish() {
    const char* const end = is_cancelled_ ? "cancelled" : error_.empty() ? "stop" : "failed";
    metrics_.add_request({id_, request_id_, num_tokens_, num_reused_, 0, std::nullopt,
                          core::seconds_since(start_), end});
    if (is_cancelled_ && error_.empty()) error_ = "the server is about to end";
    HttpAnswer answer;
    if (error_.empty()) {
      answer.body = body();
    } else {
      const int status = is_cancelled_ ? 503 : 500;
      answer = ApiError(status, error_type_of(status), error_).answer();
    }
    reply_->send(std::move(answer));
  }

  std::string body() const {
    std::string text = "{\"object\":\"list\",\"data\":[";
    for (size_t i = 0; i < vectors_.size(); ++i) {
      if (i > 0) text += ',';
      text += core::join("{\"object\":\"embedding\",\"index\":", i, ",\"embedding\":");
      text += is_base64_ ? '"' + base64_text(bytes_of(vectors_[i])) + '"' : list_text(vectors_[i]);
      text += '}';
    }
    return text + core::join("],\"model\":", core::dump_json(model_), ",\"usage\":",
                             core::dump_json(
                                 {{"prompt_tokens", num_tokens_}, {"total_tokens", num_tokens_}}),
                             "}");
  }

  bool is_base64_;
  std::string id_, request_id_, model_;
  Metrics& metrics_;
  std::shared_ptr<HttpReply> reply_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::vector<std::vector<float>> vectors_;
  int64_t num_tokens_ = 0, num_reused_ = 0;
  size_t num_ended_ = 0;
  bool is_cancelled_ = false;
  std::string error_;
};

void check_numbers(size_t num_inputs, int64_t width) {
  const int64_t most = std::max<int64_t>(1, kMostNumbers / width);
  if (std::cmp_less_equal(num_inputs, most)) return;
  throw ApiError::invalid("input", core::join("a list of ", num_inputs, " texts of ", width,
                                              " numbers each, expected at most ", most));
}

}  // namespace

std::string base64_text(const std::string& bytes) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k) {
      bits = bits << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    }
    for (size_t k = 0; k < 4; ++k) {
      text += i + k > bytes.size() ? '=' : kLetters[bits >> (18 - 6 * k) & 63];
    }
  }
  return text;
}

void answer_embeddings(const EmbeddingRequest& request, const ServedModel& model,
                       const Prompts& prompts, Metrics& metrics,
                       const std::shared_ptr<HttpReply>& reply) {
  const int64_t adapter = prompts.adapter_of(request.model);
  check_numbers(request.inputs.size(), model.width);
  const auto collected =
      std::make_shared<Collected>(request, prompts.model_name(adapter), metrics, reply);
  std::vector<std::pair<SequenceRequest, SequenceSink>> sequences;
  for (const PromptInput& input : request.inputs) {
    SequenceRequest sequence;
    sequence.prompt = prompts.whole(input);
    prompts.check(sequence.prompt, "input");
    sequence.pooling = model.pooling;
    sequence.client = request.client;
    sequence.adapter = adapter;
    collected->count_tokens(std::ssize(sequence.prompt));
    const auto sink = [collected, index = sequences.size()](const SequenceEvent& event) {
      collected->take(index, event);
    };
    sequences.emplace_back(std::move(sequence), sink);
  }
  cancel_when_gone(*model.scheduler, submit_all(*model.scheduler, std::move(sequences)), reply);
}

}  // namespace weft::serve
