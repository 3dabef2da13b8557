#include "weft/text/chat_template.h"

#include <algorithm>
#include <span>

#include "weft/core/error.h"
#include "weft/core/hash.h"
#include "weft/text/jinja/eval.h"
#include "weft/text/jinja/syntax/parser.h"
#include "weft/text/unicode/utf8.h"

namespace weft::text {

struct ChatTemplate::Impl {
  jinja::Body body;
  std::string where;
  uint64_t source_hash;
};

namespace {

// Words that templates compare roles with. As they are fixed, a template may build control tokens
// of them, e.g. '<|' + role + '|>'; any other role counts as typed by a user.
constexpr std::string_view kKnownRoles[] = {"system", "user",     "assistant", "tool",  "developer",
                                            "model",  "function", "ipython",   "human", "gpt"};

jinja::Value input_text(const std::string& bytes, bool typed) {
  return jinja::Value::text(jinja::Text(to_valid_utf8(bytes), typed));
}

jinja::Value messages_value(const std::vector<Message>& messages) {
  std::vector<jinja::Value> items;
  for (const Message& message : messages) {
    const bool known = std::find(std::begin(kKnownRoles), std::end(kKnownRoles), message.role) !=
                       std::end(kKnownRoles);
    items.push_back(
        jinja::Value::dict({{jinja::Value::text("role"), input_text(message.role, !known)},
                            {jinja::Value::text("content"), input_text(message.content, true)}}));
  }
  return jinja::Value::list(std::move(items));
}

std::vector<std::pair<std::string, jinja::Value>> names_of(const ChatTemplate::Inputs& inputs) {
  return {{"messages", messages_value(inputs.messages)},
          {"bos_token", input_text(inputs.bos_token, false)},
          {"eos_token", input_text(inputs.eos_token, false)},
          {"add_generation_prompt", jinja::Value(inputs.add_generation_prompt)},
          {"tools", jinja::Value(jinja::None{})},
          {"documents", jinja::Value(jinja::None{})}};
}

// Messages stay on one line whatever a template puts into them.
std::string one_line(std::string text) {
  constexpr size_t kMaxMessage = 500;
  if (text.size() > kMaxMessage) text = text.substr(0, kMaxMessage) + "…";
  text = to_valid_utf8(text);
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
  return text;
}

}  // namespace

ChatTemplate ChatTemplate::parse(const std::string& source, const std::string& where) {
  core::check<core::FormatError>(is_valid_utf8(source), where,
                                 ": expected UTF-8, got other bytes; the file is damaged");
  ChatTemplate compiled;
  compiled.impl_ = std::make_shared<const Impl>(
      Impl{jinja::parse(source, where), where, core::hash_bytes(std::as_bytes(std::span(source)))});
  return compiled;
}

std::vector<ChatPiece> ChatTemplate::render(const Inputs& inputs) const {
  jinja::Evaluator evaluator(names_of(inputs));
  jinja::Text text;
  try {
    text = evaluator.run(impl_->body);
  } catch (const jinja::Fault& error) {
    core::fail<core::ConfigError>(impl_->where, ": line ", evaluator.line(), ": ",
                                  one_line(error.what()));
  }
  std::vector<ChatPiece> pieces;
  size_t begin = 0;
  for (const jinja::Text::Run& run : text.runs()) {
    pieces.push_back({text.bytes().substr(begin, run.end - begin), !run.typed});
    begin = run.end;
  }
  return pieces;
}

uint64_t ChatTemplate::source_hash() const { return impl_->source_hash; }

std::string ChatTemplate::render_text(const Inputs& inputs) const {
  std::string text;
  for (const ChatPiece& piece : render(inputs)) text += piece.text;
  return text;
}

}  // namespace weft::text
