#include <algorithm>

#include "weft/text/jinja/callable.h"

namespace weft::text::jinja {

std::vector<const Value*> bind(std::string_view what, const Args& args,
                               std::initializer_list<std::string_view> names) {
  if (args.positional.size() > names.size()) {
    fault(what, " takes at most ", names.size(), " arguments, got ", args.positional.size());
  }
  std::vector<const Value*> values(names.size(), nullptr);
  for (size_t i = 0; i < args.positional.size(); ++i) values[i] = &args.positional[i];
  for (const auto& [name, value] : args.named) {
    const auto known = std::find(names.begin(), names.end(), name);
    if (known == names.end()) fault(what, " has no argument named '", name, "'");
    values[static_cast<size_t>(known - names.begin())] = &value;
  }
  return values;
}

std::string string_of(const Value& value, std::string_view what) {
  const Text* text = value.as_text();
  if (text == nullptr) fault(what, ": expected a string, got ", type_name(value));
  return text->bytes();
}

int64_t integer_of(const Value& value, std::string_view what) {
  if (!value.is_integer()) fault(what, ": expected a whole number, got ", type_name(value));
  return value.as_integer();
}

void charge_text(Context& context, size_t size) {
  if (size > kMaxTextBytes) {
    fault("builds a text of more than the limit of ", kMaxTextBytes, " bytes");
  }
  context.charge(size / 32);
}

void charge_walk(Context& context, const Value& value) { context.charge(extent_of(value).weight); }

void charge_items(Context& context, size_t count) {
  constexpr size_t kMaxItems = 1'000'000;
  if (count > kMaxItems) fault("builds a list of more than the limit of ", kMaxItems, " items");
  context.charge(count);
}

}  // namespace weft::text::jinja
