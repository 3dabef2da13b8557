#include "weft/text/jinja/collections.h"

#include <algorithm>
#include <charconv>

namespace weft::text::jinja {
namespace {

std::vector<Value> items_of(Context& context, const Value& value) {
  std::vector<Value> items = to_items(value);
  charge_items(context, items.size());
  return items;
}

bool flag(const Value* value) { return value != nullptr && is_true(*value); }

// Follows "a.b.0" from a value.
Value follow(Context& context, Value value, const Value& path) {
  if (path.is_integer()) return get_item(context, value, path);
  std::string_view rest =
      path.as_text() == nullptr ? "" : std::string_view(path.as_text()->bytes());
  if (rest.empty()) fault("an attribute's name must be a string or a number");
  while (!rest.empty()) {
    const size_t dot = std::min(rest.find('.'), rest.size());
    const std::string_view part = rest.substr(0, dot);
    int64_t index = 0;
    const auto parsed = std::from_chars(part.begin(), part.end(), index);
    const bool is_index = parsed.ec == std::errc() && parsed.ptr == part.end();
    if (value.is_undefined()) return value;
    value = get_item(context, value, is_index ? Value::integer(index) : Value::text(part));
    rest.remove_prefix(std::min(dot + 1, rest.size()));
  }
  return value;
}

// What a filter compares: an attribute or the item, strings without case unless asked.
Value sort_key(Context& context, const Value& item, const Value* attribute, bool case_sensitive) {
  const bool has_attribute = attribute != nullptr && !attribute->is_none();
  Value key = has_attribute ? follow(context, item, *attribute) : item;
  const Text* text = key.as_text();
  if (case_sensitive || text == nullptr) return key;
  charge_text(context, text->size());
  return Value::text(change_case(text->bytes(), Case::kLower));
}

struct Keyed {
  Value key;
  Value item;
};

std::vector<Value> sorted(Context& context, std::vector<Keyed> rows, bool reverse) {
  // Each key takes part in about log2 of the size comparisons.
  for (const Keyed& row : rows) context.charge(extent_of(row.key).weight * 20);
  std::stable_sort(rows.begin(), rows.end(), [&](const Keyed& a, const Keyed& b) {
    return reverse ? less(b.key, a.key) : less(a.key, b.key);
  });
  std::vector<Value> out;
  for (Keyed& row : rows) out.push_back(std::move(row.item));
  return out;
}

Value sort_filter(Context& context, const Value& input, const Args& args) {
  const auto arg = bind("sort", args, {"reverse", "case_sensitive", "attribute"});
  std::vector<Keyed> rows;
  for (Value& item : items_of(context, input)) {
    Value key = sort_key(context, item, arg[2], flag(arg[1]));
    rows.push_back({std::move(key), std::move(item)});
  }
  return Value::list(sorted(context, std::move(rows), flag(arg[0])));
}

Value pair_of(const std::pair<Value, Value>& entry) {
  return Value::list({entry.first, entry.second}, true);
}

const Dict& dict_of(const Value& input, std::string_view what) {
  const Dict* dict = input.as_dict();
  if (dict == nullptr) fault(what, ": expected a mapping, got ", type_name(input));
  return *dict;
}

Value dictsort_filter(Context& context, const Value& input, const Args& args) {
  const auto arg = bind("dictsort", args, {"case_sensitive", "by", "reverse"});
  const std::string by = arg[1] == nullptr ? "key" : string_of(*arg[1], "dictsort's by");
  if (by != "key" && by != "value") fault("dictsort's by must be 'key' or 'value'");
  std::vector<Keyed> rows;
  for (const auto& entry : dict_of(input, "dictsort").entries) {
    const Value& key = by == "key" ? entry.first : entry.second;
    rows.push_back({sort_key(context, key, nullptr, flag(arg[0])), pair_of(entry)});
  }
  return Value::list(sorted(context, std::move(rows), flag(arg[2])));
}

Value unique_filter(Context& context, const Value& input, const Args& args) {
  const auto arg = bind("unique", args, {"case_sensitive", "attribute"});
  std::vector<Value> seen, out;
  for (Value& item : items_of(context, input)) {
    Value key = sort_key(context, item, arg[1], flag(arg[0]));
    context.charge((1 + seen.size() / 4) * extent_of(key).weight);
    const auto same = [&](const Value& other) { return equals(other, key); };
    if (std::any_of(seen.begin(), seen.end(), same)) continue;
    seen.push_back(std::move(key));
    out.push_back(std::move(item));
  }
  return Value::list(std::move(out));
}

template <bool largest>
Value extreme_filter(Context& context, const Value& input, const Args& args) {
  const auto arg = bind("min or max", args, {"case_sensitive", "attribute"});
  Keyed best;
  bool found = false;
  for (Value& item : items_of(context, input)) {
    Value key = sort_key(context, item, arg[1], flag(arg[0]));
    if (found && !(largest ? less(best.key, key) : less(key, best.key))) continue;
    best = {std::move(key), std::move(item)};
    found = true;
  }
  return found ? best.item : Value::undefined("no item: the sequence is empty");
}

Value first_filter(Context& context, const Value& input, const Args& args) {
  bind("first", args, {});
  const std::vector<Value> items = items_of(context, input);
  return items.empty() ? Value::undefined("no first item: the sequence is empty") : items.front();
}

Value last_filter(Context& context, const Value& input, const Args& args) {
  bind("last", args, {});
  const std::vector<Value> items = items_of(context, input);
  return items.empty() ? Value::undefined("no last item: the sequence is empty") : items.back();
}

Value list_filter(Context& context, const Value& input, const Args& args) {
  bind("list", args, {});
  return Value::list(items_of(context, input));
}

Value items_filter(Context& context, const Value& input, const Args& args) {
  bind("items", args, {});
  std::vector<Value> out;
  if (input.is_undefined()) return Value::list(std::move(out));
  for (const auto& entry : dict_of(input, "items").entries) out.push_back(pair_of(entry));
  charge_items(context, out.size());
  return Value::list(std::move(out));
}

Value reverse_filter(Context& context, const Value& input, const Args& args) {
  bind("reverse", args, {});
  std::vector<Value> items = items_of(context, input);
  std::reverse(items.begin(), items.end());
  if (input.as_text() == nullptr) return Value::list(std::move(items));
  Text out;
  for (const Value& item : items) out.append(*item.as_text());
  return Value::text(std::move(out));
}

Value join_filter(Context& context, const Value& input, const Args& args) {
  const auto arg = bind("join", args, {"d", "attribute"});
  const Text separator = arg[0] == nullptr ? Text() : to_text(*arg[0]);
  const bool has_attribute = arg[1] != nullptr && !arg[1]->is_none();
  Text out;
  bool first = true;
  for (const Value& item : items_of(context, input)) {
    if (!first) out.append(separator);
    first = false;
    const Text text = to_text(has_attribute ? follow(context, item, *arg[1]) : item);
    context.charge((separator.size() + text.size()) / 32);
    out.append(text);
    if (out.size() > kMaxTextBytes) charge_text(context, out.size());
  }
  return Value::text(std::move(out));
}

Value sum_filter(Context& context, const Value& input, const Args& args) {
  const auto arg = bind("sum", args, {"attribute", "start"});
  const bool has_attribute = arg[0] != nullptr && !arg[0]->is_none();
  int64_t whole = 0;
  double real = 0;
  bool is_real = false;
  std::vector<Value> items = items_of(context, input);
  if (arg[1] != nullptr) items.insert(items.begin(), *arg[1]);
  for (size_t i = 0; i < items.size(); ++i) {
    const bool is_start = i == 0 && arg[1] != nullptr;
    const Value item = has_attribute && !is_start ? follow(context, items[i], *arg[0]) : items[i];
    if (!item.is_number()) fault("sum: expected numbers, got ", type_name(item));
    is_real = is_real || !item.is_integer();
    real += item.as_double();
    if (item.is_integer() && __builtin_add_overflow(whole, item.as_integer(), &whole)) {
      fault("a whole number does not fit 64 bits");
    }
  }
  return is_real ? Value(real) : Value::integer(whole);
}

Args without_first(const Args& args, size_t count) {
  Args rest{{}, args.named};
  if (args.positional.size() > count) {
    rest.positional.assign(args.positional.begin() + static_cast<ptrdiff_t>(count),
                           args.positional.end());
  }
  return rest;
}

Value map_attribute(Context& context, const Value& input, const Args& args) {
  const auto arg = bind("map", args, {"attribute", "default"});
  std::vector<Value> out;
  for (const Value& item : items_of(context, input)) {
    const Value value = follow(context, item, *arg[0]);
    const bool is_missing = value.is_undefined() && arg[1] != nullptr;
    out.push_back(is_missing ? *arg[1] : value);
  }
  return Value::list(std::move(out));
}

Value map_filter(Context& context, const Value& input, const Args& args) {
  if (!is_true(input)) return Value::list({});  // also none, as in Jinja
  if (args.positional.empty()) {
    const auto named = [](const auto& entry) { return entry.first == "attribute"; };
    if (std::none_of(args.named.begin(), args.named.end(), named)) {
      fault("map needs a filter or an attribute");
    }
    return map_attribute(context, input, args);
  }
  const std::string name = string_of(args.positional[0], "map's filter");
  const Filter filter = find_filter(name);
  if (filter == nullptr) fault("no filter is named '", name, "'");
  const Args rest = without_first(args, 1);
  std::vector<Value> out;
  for (const Value& item : items_of(context, input)) {
    context.charge(8);
    out.push_back(filter(context, item, rest));
  }
  return Value::list(std::move(out));
}

// Items for which the test named by argument `skipped`, or their truth, is `wanted`.
Value select(Context& context, const Value& input, const Args& args, bool by_attribute,
             bool wanted) {
  if (!is_true(input)) return Value::list({});
  const size_t skipped = by_attribute ? 1 : 0;
  if (args.positional.size() < skipped) fault("selectattr and rejectattr need an attribute");
  Test test = nullptr;
  if (args.positional.size() > skipped) {
    const std::string name = string_of(args.positional[skipped], "the name of a test");
    test = find_test(name);
    if (test == nullptr) fault("no test is named '", name, "'");
  }
  const Args rest = without_first(args, skipped + 1);
  std::vector<Value> out;
  for (Value& item : items_of(context, input)) {
    context.charge(8);
    const Value value = by_attribute ? follow(context, item, args.positional[0]) : item;
    const bool result = test == nullptr ? is_true(value) : test(context, value, rest);
    if (result == wanted) out.push_back(std::move(item));
  }
  return Value::list(std::move(out));
}

template <bool by_attribute, bool wanted>
Value select_filter(Context& context, const Value& input, const Args& args) {
  return select(context, input, args, by_attribute, wanted);
}

constexpr Named<Filter> kCollectionFilters[] = {
    {"dictsort", dictsort_filter},
    {"first", first_filter},
    {"items", items_filter},
    {"join", join_filter},
    {"last", last_filter},
    {"list", list_filter},
    {"map", map_filter},
    {"max", extreme_filter<true>},
    {"min", extreme_filter<false>},
    {"reject", select_filter<false, false>},
    {"rejectattr", select_filter<true, false>},
    {"reverse", reverse_filter},
    {"select", select_filter<false, true>},
    {"selectattr", select_filter<true, true>},
    {"sort", sort_filter},
    {"sum", sum_filter},
    {"unique", unique_filter},
};

}  // namespace

Filter find_collection_filter(std::string_view name) {
  return find_named<Filter>(kCollectionFilters, name);
}

}  // namespace weft::text::jinja
