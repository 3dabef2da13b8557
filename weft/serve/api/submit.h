#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "weft/serve/engine/scheduler.h"
#include "weft/serve/http/server.h"

namespace weft::serve {

/// 429: too many requests wait.
[[noreturn]] void refuse_queue();

/// Queues sequences and returns their numbers. Throws ApiError: 429 while too many wait, 503 once
/// the scheduler drains.
std::vector<uint64_t> submit_all(Scheduler& scheduler,
                                 std::vector<std::pair<SequenceRequest, SequenceSink>> sequences);

/// Ends sequences whose client goes before it has been answered.
void cancel_when_gone(Scheduler& scheduler, std::vector<uint64_t> numbers,
                      const std::shared_ptr<HttpReply>& reply);

}  // namespace weft::serve
