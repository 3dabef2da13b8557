#include "weft/cli/talk/saved_talk.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "weft/cli/output.h"
#include "weft/core/error.h"
#include "weft/core/files/atomic_file.h"
#include "weft/core/files/file.h"
#include "weft/core/json.h"

namespace weft::cli {
namespace {

constexpr uint64_t kMostTalkBytes = uint64_t{64} << 20;
constexpr std::array<std::string_view, 3> kRoles = {"system", "user", "assistant"};

text::Message read_message(const core::Json& item, const std::string& where) {
  text::Message message;
  message.role = core::to_string(core::require(item, "role", where), where + ": role");
  message.content = core::to_string(core::require(item, "content", where), where + ": content");
  core::check<core::FormatError>(
      std::find(kRoles.begin(), kRoles.end(), message.role) != kRoles.end(), where,
      ": role: expected system, user or assistant, got ", core::quote(message.role));
  return message;
}

}  // namespace

void save_talk(const std::string& path, const std::vector<text::Message>& messages, bool force) {
  check_new_file(path, force, {});
  core::Json list = core::Json::array();
  for (const text::Message& message : messages) {
    list.push_back({{"role", message.role}, {"content", message.content}});
  }
  const std::string text = core::dump_json({{"messages", list}}) + "\n";
  core::write_file_atomically(path, text);
}

std::vector<text::Message> load_talk(const std::string& path) {
  const core::Json whole = core::parse_json(core::read_text_file(path, kMostTalkBytes), path);
  const core::Json& list = whole.is_object() ? core::require(whole, "messages", path) : whole;
  core::check<core::FormatError>(list.is_array(), path, ": messages: expected a list of messages");
  std::vector<text::Message> messages;
  for (size_t i = 0; i < list.size(); ++i) {
    messages.push_back(read_message(list[i], core::join(path, ": messages[", i, "]")));
  }
  return messages;
}

}  // namespace weft::cli
