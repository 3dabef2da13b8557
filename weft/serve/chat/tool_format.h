#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "weft/grammar/grammar.h"
#include "weft/text/chat_template.h"

namespace weft::serve {

/// How a family of models writes the tools that it calls.
enum class ToolFormat {
  /// <tool_call> {"name": …, "arguments": {…}} </tool_call>, any number of them: Hermes, Qwen.
  kHermes,
  /// The answer is {"name": …, "parameters": {…}}, or several with semicolons: Llama 3.1 on.
  kLlama,
  /// [TOOL_CALLS] and a list of {"name": …, "arguments": {…}}, or [TOOL_CALLS]f[ARGS]{…}: Mistral.
  kMistral,
  /// Messages in channels, calls to functions.f: gpt-oss.
  kHarmony,
  /// <tool_call>f <arg_key>x</arg_key> <arg_value>a</arg_value> </tool_call>: GLM 4.5 on.
  kGlm,
  /// <tool_call> <function=f> <parameter=x> a </parameter> </function> </tool_call>: Qwen3-Coder,
  /// Qwen3.5.
  kQwenCoder,
  /// <｜tool▁call▁begin｜>function<｜tool▁sep｜>f, a fence and JSON: DeepSeek V3 and R1.
  kDeepSeek,
  /// <｜tool▁call▁begin｜>f<｜tool▁sep｜>{…}: DeepSeek V3.1.
  kDeepSeekV31,
  /// <|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{…}: Kimi K2.
  kKimi,
  /// <|tool_call_start|>[f(x="a")]<|tool_call_end|>: LFM2.
  kLfm2,
  /// <|tool_call>call:f{x:<|"|>a<|"|>}<tool_call|>: Gemma 4.
  kGemma4,
  /// The same in <start_function_call> and <escape>: FunctionGemma.
  kFunctionGemma,
  /// <|tool_call|> and a list of objects: Phi-4-mini, Granite.
  kPhi4,
  /// <|START_ACTION|> and a list of {"tool_name": …, "parameters": {…}}: Command R7B and A.
  kCommand,
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

/// What a structural tag has to know of a model and a prompt.
struct TagOptions {
  /// Special tokens among the family's marks, and their ids: texts can't stand for them.
  std::vector<std::pair<std::string, int64_t>> special = {};
  /// The prompt has begun the reasoning, which comes before calls and words.
  bool begins_in_reasoning = false;
  /// xgrammar's format of an answer's words; empty: they are free.
  std::string words = {};
};

/// Whether a tool may be called.
inline bool is_meant(const Tool& tool, const ToolChoice& choice) {
  return choice.name.empty() || choice.name == tool.name;
}

/// Whether the family's calls begin with a mark, so that they can be told from words of any form.
bool has_marked_calls(ToolFormat format);

/// xgrammar's format, as it stands in a structural tag, of what a grammar allows.
std::string format_of(const grammar::Source& source);

/// The format that a template's own words show; kHermes where they show none.
ToolFormat tool_format_of(const text::ChatTemplate& chat_template);

/// For a template that knows no tools: says them in a system message, in the words of kHermes, and
/// turns calls and their results into texts.
std::vector<text::Message> with_tools_in_words(const std::vector<text::Message>& messages,
                                               const std::vector<Tool>& tools);

/// A structural tag of xgrammar for what an answer may be: with kRequired calls alone; otherwise,
/// where options.words is given, words of this form or, if there are tools, calls; or else any text
/// whose calls are of these tools.
std::string structural_tag_of(ToolFormat format, const std::vector<Tool>& tools,
                              const ToolChoice& choice, const TagOptions& options = {});

}  // namespace weft::serve
