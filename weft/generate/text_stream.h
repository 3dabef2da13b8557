#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/generate/engine.h"
#include "weft/generate/options.h"
#include "weft/generate/stop.h"
#include "weft/text/tokenizer/tokenizer.h"

namespace weft::generate {

/// Turns the tokens of an answer into its text as they come, and says where it ends: at a token
/// that ends texts or before a stop text. Special tokens have no text unless
/// the options say so. One process's; no
/// collective.
class TextStream {
 public:
  /// `tokenizer` must outlive this. Throws ConfigError for a stop text that is empty.
  TextStream(const text::Tokenizer& tokenizer, const TextOptions& options);

  /// What a token brings.
  struct Step {
    /// Text that is certain to belong to the answer: whole characters, often none.
    std::string text;
    /// kStop where the answer ends, without this token; never kCancel.
    Verdict verdict = Verdict::kContinue;
  };
  Step push(int64_t token);
  /// The text that was held back, once there are no more tokens.
  std::string finish();

 private:
  const text::Tokenizer& tokenizer_;
  bool ignores_end_;
  std::vector<int64_t> spelled_;
  text::Utf8Stream characters_;
  StopFinder stop_;
};

}  // namespace weft::generate
