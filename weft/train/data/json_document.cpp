#include <nlohmann/json.hpp>

#include "weft/core/error.h"
#include "weft/core/json.h"
#include "weft/train/data/documents.h"

namespace weft::train {
namespace {

using core::check;
using core::FormatError;
using core::Json;

constexpr char kMessagesForm[] = "; write [{\"role\": …, \"content\": …}, …]";
constexpr char kForms[] = "\"text\", \"messages\", or \"prompt\" with \"completion\"";

// The keys of an object, for messages: a few of them, whatever the file holds.
std::string key_list(const Json& object) {
  constexpr size_t kMaxKeys = 8;
  std::string list;
  size_t count = 0;
  for (const auto& item : object.items()) {
    if (count++ == kMaxKeys) return list + ", …";
    list += (list.empty() ? "" : ", ") + core::quote(item.key());
  }
  return list.empty() ? "none" : list;
}

std::string require_text(const Json& object, const std::string& key, const std::string& where) {
  const std::string place = core::join(where, ": ", key);
  const std::string value = core::to_string(core::require(object, key, where), place);
  check<FormatError>(!value.empty(), place, ": expected text, got none; remove the line");
  return value;
}

text::Message parse_message(const Json& value, const std::string& where) {
  check<FormatError>(value.is_object(), where, ": expected an object with role and content, got ",
                     value.type_name(), kMessagesForm);
  check<FormatError>(!value.contains("tool_calls"), where,
                     ": tool_calls: expected role and content alone; write the call into content");
  text::Message message;
  message.role = require_text(value, "role", where);
  // An answer must say something to be learned; a user may be silent.
  message.content =
      message.role == "assistant"
          ? require_text(value, "content", where)
          : core::to_string(core::require(value, "content", where), core::join(where, ": content"));
  return message;
}

Conversation parse_conversation(const Json& list, const std::string& where) {
  check<FormatError>(list.is_array(), where, ": messages: expected a list, got ", list.type_name(),
                     kMessagesForm);
  Conversation conversation;
  bool has_answer = false;
  for (size_t i = 0; i < list.size(); ++i) {
    conversation.messages.push_back(
        parse_message(list[i], core::join(where, ": messages[", i, "]")));
    has_answer = has_answer || conversation.messages.back().role == "assistant";
  }
  check<FormatError>(has_answer, where,
                     ": messages: expected one of role assistant, got none; only answers are "
                     "learned, so remove the line");
  return conversation;
}

}  // namespace

Document parse_json_document(const std::string& line, const std::string& where) {
  const Json value = core::parse_json(line, where);
  check<FormatError>(value.is_object(), where, ": expected an object with ", kForms, ", got ",
                     value.type_name(), "; write one JSON object per line");
  const bool has_text = value.contains("text");
  const bool has_messages = value.contains("messages");
  const bool has_prompt = value.contains("prompt") || value.contains("completion");
  check<FormatError>(int{has_text} + int{has_messages} + int{has_prompt} == 1, where,
                     ": expected one of ", kForms, ", got the keys ", key_list(value),
                     "; rename the key that holds the text");
  Document document;
  document.where = where;
  if (has_text) {
    TextPart part;
    part.text = core::to_string(value["text"], core::join(where, ": text"));
    document.content = std::move(part);
  } else if (has_messages) {
    document.content = parse_conversation(value["messages"], where);
  } else {
    Completion completion;
    completion.prompt = core::to_string(core::require(value, "prompt", where), where + ": prompt");
    completion.completion = require_text(value, "completion", where);
    document.content = std::move(completion);
  }
  return document;
}

}  // namespace weft::train
