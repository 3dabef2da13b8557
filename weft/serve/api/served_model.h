#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "weft/serve/engine/scheduler.h"
#include "weft/text/chat_template.h"
#include "weft/text/tokenizer/tokenizer.h"

namespace weft::serve {

/// What the served model is called as well, whatever its name.
inline constexpr const char* kDefaultModel = "default";

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
  /// Names of adapters that requests may ask for: the first is number 1 (nn::AdapterScope).
  std::vector<std::string> adapters = {};
  /// Another one whenever the model, the program or what the answers' bits depend on is another;
  /// empty: none is told.
  std::string fingerprint = {};
  /// What keeps the ranks from going on; empty: nothing. For any thread. None: nobody looks.
  std::function<std::string()> standstill = nullptr;
};

}  // namespace weft::serve
