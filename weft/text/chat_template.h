#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace weft::text {

/// One turn of a chat; roles are the template's, e.g. "user".
struct Message {
  std::string role;
  std::string content;
};

/// A piece of a rendered chat: `is_special` pieces come from the template and may hold control
/// tokens, the others were typed by a user and never become one.
struct ChatPiece {
  std::string text;
  bool is_special = false;
};

/// The Jinja chat template that a model ships, compiled. Runs with limits on steps, depth and
/// output. Immutable.
class ChatTemplate {
 public:
  /// Throws FormatError with the line number for what it cannot parse.
  static ChatTemplate parse(const std::string& source, const std::string& where);

  struct Inputs {
    std::vector<Message> messages;
    std::string bos_token;
    std::string eos_token;
    bool add_generation_prompt = true;
  };
  /// The prompt as pieces, in order. Throws ConfigError when the template raises an exception or a
  /// limit is passed.
  std::vector<ChatPiece> render(const Inputs& inputs) const;
  /// The same as one string.
  std::string render_text(const Inputs& inputs) const;
  /// Hash of the source that it was compiled from.
  uint64_t source_hash() const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace weft::text
