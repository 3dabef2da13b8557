#include <algorithm>

#include "weft/text/jinja/eval.h"

namespace weft::text::jinja {
namespace {

constexpr int64_t kMaxIndex = int64_t{1} << 62;

Value no_item(const Value& value, const std::string& key) {
  return Value::undefined("'", type_name(value), " object' has no attribute ", key);
}

// Python's index: from the end if negative; nothing outside.
std::optional<size_t> resolve_index(int64_t index, size_t size) {
  const auto length = static_cast<int64_t>(size);
  if (index < -length || index >= length) return std::nullopt;
  return static_cast<size_t>(index < 0 ? index + length : index);
}

Value text_item(Context& context, const Value& value, int64_t index) {
  const Text& text = *value.as_text();
  context.charge(text.size() / 8);
  const std::vector<size_t> offsets = char_offsets(text.bytes());
  const auto place = resolve_index(index, offsets.size() - 1);
  if (!place) return no_item(value, std::to_string(index));
  return Value::text(text.slice(offsets[*place], offsets[*place + 1]));
}

Value loop_attribute(const LoopState& loop, const std::string& name) {
  const auto number = [](size_t value) { return Value::integer(static_cast<int64_t>(value)); };
  const size_t size = loop.items.size();
  if (name == "index") return number(loop.index + 1);
  if (name == "index0") return number(loop.index);
  if (name == "revindex") return number(size - loop.index);
  if (name == "revindex0") return number(size - loop.index - 1);
  if (name == "first") return Value(loop.index == 0);
  if (name == "last") return Value(loop.index + 1 == size);
  if (name == "length") return number(size);
  // Only recursive loops go deeper.
  if (name == "depth") return number(1);
  if (name == "depth0") return number(0);
  if (name == "previtem") {
    return loop.index > 0 ? loop.items[loop.index - 1]
                          : Value::undefined("there is no previous item");
  }
  if (name == "nextitem") {
    return loop.index + 1 < size ? loop.items[loop.index + 1]
                                 : Value::undefined("there is no next item");
  }
  return Value::undefined("'loop' has no attribute '", name, "'");
}

// Changing methods, which the sandbox that published templates are written for refuses too.
bool is_unsafe(const Value& value, const std::string& name) {
  constexpr std::string_view kList[] = {"append", "extend", "insert",  "pop",
                                        "remove", "clear",  "reverse", "sort"};
  constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  const auto has = [&](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  return (value.as_list() != nullptr && has(kList)) || (value.as_dict() != nullptr && has(kDict));
}

std::optional<Value> method_of(const Value& value, const std::string& name) {
  if (name.starts_with('_') || is_unsafe(value, name)) {
    return Value::undefined("access to attribute '", name, "' of '", type_name(value),
                            "' object is unsafe");
  }
  const Callable::Method method = find_method(value, name);
  if (method == nullptr) return std::nullopt;
  return Value(std::make_shared<const Callable>(
      Callable{.name = name, .method = method, .self = value, .extent = extent_around(value)}));
}

}  // namespace

Value get_attribute(const Value& value, const std::string& name) {
  if (auto* const* space = value.get<Namespace*>()) {
    for (const auto& [known, attribute] : (*space)->attributes) {
      if (known == name) return attribute;
    }
    return Value::undefined("'Namespace' has no attribute '", name, "'");
  }
  if (auto* const* loop = value.get<LoopState*>()) {
    if (find_method(value, name) == nullptr) return loop_attribute(**loop, name);
  }
  const auto* callable = value.get<std::shared_ptr<const Callable>>();
  if (callable != nullptr && (*callable)->macro != nullptr && name == "name") {
    return Value::text((*callable)->name);
  }
  const Dict* dict = value.as_dict();
  const Value* entry = dict == nullptr ? nullptr : dict->find(std::string_view(name));
  const bool hidden = name.starts_with('_') && entry != nullptr;
  if (!hidden) {
    if (auto method = method_of(value, name)) return *std::move(method);
  }
  if (entry != nullptr) return *entry;
  return no_item(value, core::join("'", name, "'"));
}

Value get_item(Context& context, const Value& value, const Value& key) {
  if (key.is_integer()) {
    if (const List* list = value.as_list()) {
      const auto place = resolve_index(key.as_integer(), list->items.size());
      return place ? list->items[*place] : no_item(value, std::to_string(key.as_integer()));
    }
    if (value.as_text() != nullptr) return text_item(context, value, key.as_integer());
  }
  if (const Dict* dict = value.as_dict()) {
    context.charge((1 + dict->entries.size() / 8) * extent_of(key).weight);
    if (const Value* entry = dict->find(key)) return *entry;
  }
  const Text* name = key.as_text();
  if (name == nullptr) return no_item(value, to_repr(key));
  return get_attribute(value, name->bytes());
}

namespace {

struct Range {
  int64_t begin;
  int64_t end;
  int64_t step;
};

// Python's slice.indices().
Range resolve(const SliceBounds& bounds, size_t size) {
  const auto length = static_cast<int64_t>(size);
  const auto integer = [](const Value& value, std::string_view what) {
    return std::clamp(integer_of(value, what), -kMaxIndex, kMaxIndex);
  };
  const int64_t step = bounds.step.is_none() ? 1 : integer(bounds.step, "a slice's step");
  if (step == 0) fault("slice step cannot be zero");
  const int64_t low = step < 0 ? -1 : 0, high = step < 0 ? length - 1 : length;
  const auto bound = [&](const Value& value, int64_t fallback) {
    if (value.is_none()) return fallback;
    const int64_t index = integer(value, "a slice's bound");
    return std::clamp(index < 0 ? index + length : index, low, high);
  };
  return {bound(bounds.begin, step < 0 ? high : low), bound(bounds.end, step < 0 ? low : high),
          step};
}

}  // namespace

Value apply_slice(Context& context, const Value& value, const SliceBounds& bounds) {
  const auto for_each = [&](size_t size, auto take) {
    const Range range = resolve(bounds, size);
    for (int64_t i = range.begin; range.step > 0 ? i < range.end : i > range.end; i += range.step) {
      take(static_cast<size_t>(i));
    }
  };
  if (const List* list = value.as_list()) {
    charge_items(context, list->items.size());
    std::vector<Value> out;
    for_each(list->items.size(), [&](size_t i) { out.push_back(list->items[i]); });
    return Value::list(std::move(out), list->is_tuple);
  }
  const Text* text = value.as_text();
  if (text == nullptr) return no_item(value, "for a slice");
  charge_text(context, text->size());
  const std::vector<size_t> offsets = char_offsets(text->bytes());
  Text out;
  for_each(offsets.size() - 1,
           [&](size_t i) { out.append(text->slice(offsets[i], offsets[i + 1])); });
  return Value::text(std::move(out));
}

}  // namespace weft::text::jinja
