#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace weft::text {

/// A call of a function that a model asks for.
struct ToolCall {
  std::string id;
  std::string name;
  /// A JSON object's text; templates get any other text as it is.
  std::string arguments;
};

/// One turn of a chat; roles are the template's, e.g. "user". What is empty is left out of what a
/// template gets, but for role and content.
struct Message {
  std::string role;
  std::string content;
  std::vector<ToolCall> tool_calls = {};
  /// Of the role "tool": the call that it answers, and the function's name.
  std::string tool_call_id = {};
  std::string name = {};
  /// What the model has said to itself.
  std::string reasoning = {};
  /// Of the system's message, for templates that take tools there: their JSON text, which a render
  /// with Inputs::tools sets.
  std::string tools = {};
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
    /// JSON texts of the functions that may be called; empty: none.
    std::vector<std::string> tools = {};
    /// A JSON object's text, whose members are further names; empty: none.
    std::string names = {};
  };
  /// The prompt as pieces, in order. Throws ConfigError when the template raises an exception or a
  /// limit is passed, and FormatError for what should be JSON and is none.
  std::vector<ChatPiece> render(const Inputs& inputs) const;
  /// The same as one string.
  std::string render_text(const Inputs& inputs) const;
  /// Whether the source has such words: what a template knows shows in them.
  bool mentions(std::string_view words) const;
  /// Whether it takes tools as a text in the system's message, as Phi-4-mini's does, which was
  /// trained on functions alone rather than on objects of a type and a function.
  bool has_tools_in_messages() const;
  /// Hash of the source that it was compiled from.
  uint64_t source_hash() const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace weft::text
