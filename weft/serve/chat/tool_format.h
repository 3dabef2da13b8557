#pragma once

#include <string>
#include <vector>

#include "weft/text/chat_template.h"

namespace weft::serve {

/// How a family of models writes the tools that it calls.
enum class ToolFormat {
  /// <tool_call> {"name": …, "arguments": {…}} </tool_call>, any number of them: Hermes, Qwen.
  kHermes,
  /// The answer is {"name": …, "parameters": {…}}, or several with semicolons: Llama 3.1 on.
  kLlama,
  /// [TOOL_CALLS] and a list of {"name": …, "arguments": {…}}: Mistral.
  kMistral,
};

/// A tool that may be called.
struct Tool {
  std::string name;
  std::string description;
  /// The JSON schema of its arguments, as the client wrote it; empty: none.
  std::string parameters;
  /// Its arguments keep to the schema.
  bool is_strict = false;
  /// The whole object, as the client wrote it: what templates get.
  std::string json;
};

/// Which tools may be called.
struct ToolChoice {
  enum class Kind { kNone, kAuto, kRequired } kind = Kind::kAuto;
  /// Of kRequired: the one that has to be called; empty: any.
  std::string name;
  /// More than one may be called at once.
  bool is_parallel = true;
};

/// The format that a template's own words show; kHermes where they show none.
ToolFormat tool_format_of(const text::ChatTemplate& chat_template);

/// For a template that knows no tools: says them in a system message, in the words of kHermes, and
/// turns calls and their results into texts.
std::vector<text::Message> with_tools_in_words(const std::vector<text::Message>& messages,
                                               const std::vector<Tool>& tools);

/// A structural tag of xgrammar for what an answer may be: with kRequired calls alone, otherwise
/// any text whose calls are of these tools.
std::string structural_tag_of(ToolFormat format, const std::vector<Tool>& tools,
                              const ToolChoice& choice);

}  // namespace weft::serve
