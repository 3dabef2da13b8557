#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "weft/serve/engine/scheduler.h"
#include "weft/text/chat_template.h"
#include "weft/text/tokenizer/tokenizer.h"

namespace weft::serve {

/// A model that is loaded, as its clients see it.
struct ServedModel {
  std::string name;
  /// Outlives what is served by it.
  Scheduler* scheduler = nullptr;
  text::Tokenizer tokenizer;
  std::optional<text::ChatTemplate> chat_template;
  /// The model's own, which may be more or less than the tokenizer's.
  int64_t vocab_size = 0;
  /// Numbers of an embedding, and how texts become one.
  int64_t width = 0;
  Pooling pooling = Pooling::kLast;
};

}  // namespace weft::serve
