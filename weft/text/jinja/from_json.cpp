#include "weft/text/jinja/from_json.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "weft/core/json.h"
#include "weft/text/unicode/utf8.h"

namespace weft::text::jinja {
namespace {

// Builds values as the parser meets them: a parsed object would lose the order of its members.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  Value take() { return std::move(*result_); }

  bool null() override { return add(Value(None{})); }
  bool boolean(bool value) override { return add(Value(value)); }
  bool number_integer(number_integer_t value) override { return add(Value(int64_t{value})); }
  bool number_unsigned(number_unsigned_t value) override {
    return value <= INT64_MAX ? add(Value(static_cast<int64_t>(value)))
                              : add(Value(static_cast<double>(value)));
  }
  bool number_float(number_float_t value, const string_t& /*text*/) override {
    return add(Value(double{value}));
  }
  bool string(string_t& value) override { return add(typed(value)); }
  bool binary(binary_t& /*value*/) override { return false; }
  bool start_object(std::size_t /*size*/) override { return open(); }
  bool key(string_t& value) override {
    open_.back().key = typed(value);
    return true;
  }
  bool end_object() override {
    Open done = close();
    return add(Value::dict(std::move(done.entries)));
  }
  bool start_array(std::size_t /*size*/) override { return open(); }
  bool end_array() override {
    Open done = close();
    std::vector<Value> items;
    for (auto& [key, item] : done.entries) items.push_back(std::move(item));
    return add(Value::list(std::move(items)));
  }
  bool parse_error(std::size_t /*position*/, const std::string& /*last_token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    return false;
  }

 private:
  // A list or an object whose end has not come; a list's keys are none.
  struct Open {
    std::vector<std::pair<Value, Value>> entries;
    Value key = Value(None{});
  };

  static Value typed(const std::string& bytes) {
    return Value::text(Text(to_valid_utf8(bytes), true));
  }
  bool open() {
    open_.emplace_back();
    return true;
  }
  Open close() {
    Open done = std::move(open_.back());
    open_.pop_back();
    return done;
  }
  bool add(Value value) {
    if (open_.empty()) {
      result_ = std::move(value);
    } else {
      open_.back().entries.emplace_back(open_.back().key, std::move(value));
    }
    return true;
  }

  std::vector<Open> open_;
  std::optional<Value> result_;
};

}  // namespace

Value from_json(const std::string& text, const std::string& where) {
  core::parse_json(text, where);
  Builder builder;
  nlohmann::json::sax_parse(text, &builder);
  return builder.take();
}

}  // namespace weft::text::jinja
