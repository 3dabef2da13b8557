#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "weft/serve/api/fields.h"
#include "weft/serve/api/served_model.h"

namespace weft::serve {

/// A text, or its tokens.
using PromptInput = std::variant<std::string, std::vector<int64_t>>;

/// Reads a field that is a text, token ids, or a list of at most `most` of either. Throws ApiError,
/// 400.
std::vector<PromptInput> read_inputs(Fields& fields, const std::string& name, size_t most);

/// Turns what clients send into tokens of the served model. Throws ApiError, 400, for what does not
/// fit into its context.
class Prompts {
 public:
  using Tokens = std::vector<int64_t>;

  /// `model` must outlive this.
  explicit Prompts(const ServedModel& model);

  /// Which adapter a request means by the name of a model: 0 for the served model, whose name is
  /// also "default" or left out. 404 for another one.
  int64_t adapter_of(const std::string& name) const;
  /// What its answer calls that.
  const std::string& model_name(int64_t adapter) const;
  /// A text that is longer than the longest tokens could make it need not be cut into tokens.
  void check_bytes(size_t num_bytes) const;
  /// `field`: where the tokens come from.
  void check(const Tokens& tokens, const std::string& field) const;
  /// A text that is to be continued, or one that is complete: with the tokens that the tokenizer
  /// puts before it, or around it. Token ids stay as they are. Not checked yet.
  Tokens to_continue(const PromptInput& input) const;
  Tokens whole(const PromptInput& input) const;

 private:
  const ServedModel& model_;
  size_t longest_token_ = 1;
};

}  // namespace weft::serve
