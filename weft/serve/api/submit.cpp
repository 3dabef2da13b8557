#include "weft/serve/api/submit.h"

#include "weft/serve/api/api_error.h"

namespace weft::serve {

void refuse_queue() {
  throw ApiError(429, error_type_of(429), "too many requests wait; come back later", "",
                 "queue_full");
}

std::vector<uint64_t> submit_all(Scheduler& scheduler,
                                 std::vector<std::pair<SequenceRequest, SequenceSink>> sequences) {
  auto numbers = scheduler.submit(std::move(sequences));
  if (!numbers && scheduler.state().is_draining) {
    throw ApiError(503, error_type_of(503), "the server is about to end");
  }
  if (!numbers) refuse_queue();
  return std::move(*numbers);
}

void cancel_when_gone(Scheduler& scheduler, std::vector<uint64_t> numbers,
                      const std::shared_ptr<HttpReply>& reply) {
  reply->on_gone([&scheduler, numbers = std::move(numbers)] {
    for (const uint64_t number : numbers) scheduler.cancel(number);
  });
}

}  // namespace weft::serve
