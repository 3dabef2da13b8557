#include "weft/text/jinja/value.h"

#include <algorithm>

#include "weft/text/jinja/callable.h"

namespace weft::text::jinja {
namespace {

// Deeper values would overflow the stack of whoever walks them.
constexpr int kMaxValueDepth = 100;
constexpr uint64_t kMaxWeight = 1'000'000;

// Adds a part to what will hold it.
void enclose(Extent& outer, const Value& part) {
  const Extent inner = extent_of(part);
  if (inner.depth >= kMaxValueDepth) fault("values nested deeper than ", kMaxValueDepth, " levels");
  outer.depth = std::max(outer.depth, inner.depth + 1);
  outer.weight += inner.weight;
  if (outer.weight > kMaxWeight) {
    fault("builds a value of more than the limit of ", kMaxWeight, " parts");
  }
}

}  // namespace

Extent extent_of(const Value& value) {
  if (const Text* text = value.as_text()) return {0, 1 + text->size() / 64};
  if (const List* list = value.as_list()) return list->extent;
  if (const Dict* dict = value.as_dict()) return dict->extent;
  if (const auto* callable = value.get<std::shared_ptr<const Callable>>()) {
    return (*callable)->extent;
  }
  return {};
}

Extent extent_around(const Value& value) {
  Extent extent;
  enclose(extent, value);
  return extent;
}

Value Value::text(Text text) { return Value(std::make_shared<const Text>(std::move(text))); }

Value Value::list(std::vector<Value> items, bool is_tuple) {
  Extent extent{.depth = 1};
  for (const Value& item : items) enclose(extent, item);
  return Value(std::make_shared<const List>(List{std::move(items), is_tuple, extent}));
}

Value Value::dict(std::vector<std::pair<Value, Value>> entries) {
  auto dict = std::make_shared<Dict>();
  dict->extent.depth = 1;
  for (auto& [key, value] : entries) {
    const List* list = key.as_list();
    if ((list != nullptr && !list->is_tuple) || key.as_dict() != nullptr) {
      fault("unhashable type: '", type_name(key), "'");
    }
    enclose(dict->extent, key);
    enclose(dict->extent, value);
    const auto same =
        std::find_if(dict->entries.begin(), dict->entries.end(),
                     [&key = key](const auto& entry) { return equals(entry.first, key); });
    if (same != dict->entries.end()) {
      same->second = std::move(value);
    } else {
      dict->entries.emplace_back(std::move(key), std::move(value));
    }
  }
  return Value(std::shared_ptr<const Dict>(std::move(dict)));
}

const Text* Value::as_text() const {
  const auto* pointer = get<std::shared_ptr<const Text>>();
  return pointer != nullptr ? pointer->get() : nullptr;
}

const List* Value::as_list() const {
  const auto* pointer = get<std::shared_ptr<const List>>();
  return pointer != nullptr ? pointer->get() : nullptr;
}

const Dict* Value::as_dict() const {
  const auto* pointer = get<std::shared_ptr<const Dict>>();
  return pointer != nullptr ? pointer->get() : nullptr;
}

double Value::as_double() const {
  const auto* number = get<double>();
  return number != nullptr ? *number : static_cast<double>(as_integer());
}

int64_t Value::as_integer() const {
  if (const bool* flag = get<bool>()) return *flag ? 1 : 0;
  return std::get<int64_t>(data_);
}

const Value* Dict::find(const Value& key) const {
  for (const auto& entry : entries) {
    if (equals(entry.first, key)) return &entry.second;
  }
  return nullptr;
}

const Value* Dict::find(std::string_view key) const {
  for (const auto& entry : entries) {
    const Text* text = entry.first.as_text();
    if (text != nullptr && text->bytes() == key) return &entry.second;
  }
  return nullptr;
}

std::string type_name(const Value& value) {
  // In the order of Value::Data.
  constexpr const char* kNames[] = {"Undefined", "NoneType",  "bool", "int",
                                    "float",     "str",       "list", "dict",
                                    "function",  "Namespace", "loop"};
  const List* list = value.as_list();
  if (list != nullptr && list->is_tuple) return "tuple";
  return kNames[value.data().index()];
}

bool is_true(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (value.is_number()) return value.as_double() != 0;
  if (const Text* text = value.as_text()) return !text->empty();
  if (const List* list = value.as_list()) return !list->items.empty();
  if (const Dict* dict = value.as_dict()) return !dict->entries.empty();
  return true;
}

namespace {

bool equal_dicts(const Dict& a, const Dict& b) {
  if (a.entries.size() != b.entries.size()) return false;
  return std::all_of(a.entries.begin(), a.entries.end(), [&](const auto& entry) {
    const Value* other = b.find(entry.first);
    return other != nullptr && equals(entry.second, *other);
  });
}

bool less_numbers(const Value& a, const Value& b) {
  if (a.is_integer() && b.is_integer()) return a.as_integer() < b.as_integer();
  return a.as_double() < b.as_double();
}

}  // namespace

bool equals(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integer() && b.is_integer()) return a.as_integer() == b.as_integer();
    return a.as_double() == b.as_double();
  }
  if (a.data().index() != b.data().index()) return false;
  if (const Text* text = a.as_text()) return text->bytes() == b.as_text()->bytes();
  if (const List* list = a.as_list()) {
    const List* other = b.as_list();
    return list->is_tuple == other->is_tuple &&
           std::equal(list->items.begin(), list->items.end(), other->items.begin(),
                      other->items.end(), equals);
  }
  if (const Dict* dict = a.as_dict()) return equal_dicts(*dict, *b.as_dict());
  if (const auto* space = a.get<Namespace*>()) return *space == *b.get<Namespace*>();
  if (const auto* loop = a.get<LoopState*>()) return *loop == *b.get<LoopState*>();
  if (const auto* callable = a.get<std::shared_ptr<const Callable>>()) {
    return *callable == *b.get<std::shared_ptr<const Callable>>();
  }
  return true;
}

bool less(const Value& a, const Value& b) {
  if (a.is_undefined() || b.is_undefined()) {
    const Undefined& missing = *(a.is_undefined() ? a : b).get<Undefined>();
    fault(missing.hint ? *missing.hint : "a value is undefined");
  }
  if (a.is_number() && b.is_number()) return less_numbers(a, b);
  // UTF-8 orders as its code points do.
  if (a.as_text() != nullptr && b.as_text() != nullptr) {
    return a.as_text()->bytes() < b.as_text()->bytes();
  }
  const List *left = a.as_list(), *right = b.as_list();
  if (left == nullptr || right == nullptr || left->is_tuple != right->is_tuple) {
    fault("cannot order ", type_name(a), " and ", type_name(b));
  }
  const size_t common = std::min(left->items.size(), right->items.size());
  for (size_t i = 0; i < common; ++i) {
    if (!equals(left->items[i], right->items[i])) return less(left->items[i], right->items[i]);
  }
  return left->items.size() < right->items.size();
}

bool any_typed(const Value& value) {
  if (const Text* text = value.as_text()) return text->any_typed();
  if (const List* list = value.as_list()) {
    return std::any_of(list->items.begin(), list->items.end(), any_typed);
  }
  if (const Dict* dict = value.as_dict()) {
    return std::any_of(dict->entries.begin(), dict->entries.end(), [](const auto& entry) {
      return any_typed(entry.first) || any_typed(entry.second);
    });
  }
  // What these hold is not looked at; say the safe thing.
  return value.get<Namespace*>() != nullptr ||
         value.get<std::shared_ptr<const Callable>>() != nullptr;
}

std::vector<Value> characters(const Text& text) {
  const std::vector<size_t> offsets = char_offsets(text.bytes());
  std::vector<Value> out;
  out.reserve(offsets.size() - 1);
  for (size_t i = 0; i + 1 < offsets.size(); ++i) {
    out.push_back(Value::text(text.slice(offsets[i], offsets[i + 1])));
  }
  return out;
}

std::vector<Value> to_items(const Value& value) {
  if (value.is_undefined()) return {};
  if (const List* list = value.as_list()) return list->items;
  if (const Text* text = value.as_text()) return characters(*text);
  const Dict* dict = value.as_dict();
  if (dict == nullptr) fault("'", type_name(value), "' object is not iterable");
  std::vector<Value> keys;
  keys.reserve(dict->entries.size());
  for (const auto& entry : dict->entries) keys.push_back(entry.first);
  return keys;
}

}  // namespace weft::text::jinja
