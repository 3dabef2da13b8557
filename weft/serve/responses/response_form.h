#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>

#include "weft/serve/api/replies.h"

namespace weft::serve {

/// The form of /v1/responses, whose streams are typed events. `head.id` begins with resp_; `echo`:
/// what a response says of its request. Of its one choice come in this order: what the model says
/// to itself, its message, and its calls.
std::unique_ptr<ReplyForm> response_form(ReplyHead head, nlohmann::json echo);

}  // namespace weft::serve
