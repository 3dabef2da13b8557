#include <algorithm>
#include <array>
#include <cstdio>

#include "weft/text/jinja/callable.h"
#include "weft/text/unicode/utf8.h"

namespace weft::text::jinja {
namespace {

class JsonWriter {
 public:
  JsonWriter(Context& context, const JsonStyle& style) : context_(context), style_(style) {}

  void write(const Value& value, int level) {
    context_.charge(1);
    if (const Text* text = value.as_text()) return write_string(text->bytes());
    if (const List* list = value.as_list()) return write_list(*list, level);
    if (const Dict* dict = value.as_dict()) return write_dict(*dict, level);
    if (value.is_none() || value.is_number()) {
      add(scalar(value));
    } else {
      fault("Object of type ", type_name(value), " is not JSON serializable");
    }
  }

  std::string take() { return std::move(out_); }

 private:
  static std::string scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (const bool* flag = value.get<bool>()) return *flag ? "true" : "false";
    const double* number = value.get<double>();
    if (number != nullptr && *number - *number != 0) {
      return *number > 0 ? "Infinity" : *number < 0 ? "-Infinity" : "NaN";
    }
    return to_text(value).bytes();
  }

  void add(std::string_view text) {
    out_ += text;
    if (out_.size() > kMaxTextBytes) charge_text(context_, out_.size());
  }

  void write_string(std::string_view text) {
    context_.charge(text.size() / 32);
    out_ += '"';
    while (!text.empty()) {
      const Utf8Step step = utf8_step(text);
      write_character(step.code, text.substr(0, step.size));
      text.remove_prefix(step.size);
    }
    add("\"");
  }

  void write_character(char32_t code, std::string_view bytes) {
    constexpr std::string_view kEscaped = "\"\\\n\r\t\b\f", kLetters = "\"\\nrtbf";
    const size_t known = code < 0x80 ? kEscaped.find(static_cast<char>(code)) : kEscaped.npos;
    if (known != kEscaped.npos) {
      out_ += {'\\', kLetters[known]};
    } else if (code < 0x20 || (style_.ascii && code > 0x7E)) {
      write_hex(code);
    } else {
      out_ += bytes;
    }
  }

  void write_hex(char32_t code) {
    if (code >= 0x10000) {
      write_hex(0xD800 + ((code - 0x10000) >> 10));
      code = 0xDC00 + ((code - 0x10000) & 0x3FF);
    }
    std::array<char, 8> text{};
    std::snprintf(text.data(), text.size(), "\\u%04x", static_cast<unsigned>(code));
    out_ += text.data();
  }

  void new_line(int level) {
    if (style_.indent < 0) return;
    add("\n");
    add(std::string(static_cast<size_t>(style_.indent) * static_cast<size_t>(level), ' '));
  }

  void write_list(const List& list, int level) {
    if (list.items.empty()) return add("[]");
    add("[");
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) add(style_.item_separator);
      new_line(level + 1);
      write(list.items[i], level + 1);
    }
    new_line(level);
    add("]");
  }

  static std::string key_text(const Value& key) {
    if (const Text* text = key.as_text()) return text->bytes();
    if (key.is_none() || key.is_number()) return scalar(key);
    fault("keys must be str, int, float, bool or None, not ", type_name(key));
  }

  void write_dict(const Dict& dict, int level) {
    if (dict.entries.empty()) return add("{}");
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(),
                       [](const auto* a, const auto* b) { return less(a->first, b->first); });
    }
    add("{");
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) add(style_.item_separator);
      new_line(level + 1);
      write_string(key_text(entries[i]->first));
      add(style_.key_separator);
      write(entries[i]->second, level + 1);
    }
    new_line(level);
    add("}");
  }

  Context& context_;
  const JsonStyle& style_;
  std::string out_;
};

}  // namespace

std::string dump_value(Context& context, const Value& value, const JsonStyle& style) {
  JsonWriter writer(context, style);
  writer.write(value, 0);
  return writer.take();
}

}  // namespace weft::text::jinja
