#include <algorithm>

#include "weft/text/jinja/collections.h"
#include "weft/text/jinja/strings.h"

namespace weft::text::jinja {
namespace {

using Method = Callable::Method;

enum class Part { kItems, kKeys, kValues };

template <Part part>
Value entries_method(Context& context, const Value& self, const Args& args) {
  bind("items, keys or values", args, {});
  std::vector<Value> out;
  for (const auto& [key, value] : self.as_dict()->entries) {
    if constexpr (part == Part::kItems) out.push_back(Value::list({key, value}, true));
    if constexpr (part == Part::kKeys) out.push_back(key);
    if constexpr (part == Part::kValues) out.push_back(value);
  }
  charge_items(context, out.size());
  return Value::list(std::move(out));
}

Value get_method(Context& context, const Value& self, const Args& args) {
  const auto arg = bind("get", args, {"key", "default"});
  if (arg[0] == nullptr) fault("get needs a key");
  context.charge(self.as_dict()->entries.size() / 8);
  if (const Value* value = self.as_dict()->find(*arg[0])) return *value;
  return arg[1] != nullptr ? *arg[1] : Value(None{});
}

Value copy_method(Context&, const Value& self, const Args& args) {
  bind("copy", args, {});
  return self;
}

Value count_method(Context& context, const Value& self, const Args& args) {
  const auto arg = bind("count", args, {"value"});
  if (arg[0] == nullptr) fault("count needs a value");
  const auto& items = self.as_list()->items;
  charge_items(context, items.size());
  return Value::integer(std::count_if(items.begin(), items.end(),
                                      [&](const Value& item) { return equals(item, *arg[0]); }));
}

Value index_method(Context& context, const Value& self, const Args& args) {
  const auto arg = bind("index", args, {"value"});
  if (arg[0] == nullptr) fault("index needs a value");
  const auto& items = self.as_list()->items;
  charge_items(context, items.size());
  const auto same = [&](const Value& item) { return equals(item, *arg[0]); };
  const auto place = std::find_if(items.begin(), items.end(), same);
  if (place == items.end()) fault("the value is not in the list");
  return Value::integer(place - items.begin());
}

Value cycle_method(Context&, const Value& self, const Args& args) {
  if (args.positional.empty()) fault("no items for cycling given");
  const LoopState& loop = **self.get<LoopState*>();
  return args.positional[loop.index % args.positional.size()];
}

Value changed_method(Context&, const Value& self, const Args& args) {
  LoopState& loop = **self.get<LoopState*>();
  const auto& now = args.positional;
  const bool same = loop.has_seen && std::equal(now.begin(), now.end(), loop.last_seen.begin(),
                                                loop.last_seen.end(), equals);
  loop.last_seen = now;
  loop.has_seen = true;
  return Value(!same);
}

constexpr Named<Method> kDictMethods[] = {{"copy", copy_method},
                                          {"get", get_method},
                                          {"items", entries_method<Part::kItems>},
                                          {"keys", entries_method<Part::kKeys>},
                                          {"values", entries_method<Part::kValues>}};
constexpr Named<Method> kListMethods[] = {
    {"copy", copy_method}, {"count", count_method}, {"index", index_method}};
constexpr Named<Method> kLoopMethods[] = {{"changed", changed_method}, {"cycle", cycle_method}};

}  // namespace

Method find_collection_method(const Value& self, std::string_view name) {
  if (self.as_dict() != nullptr) return find_named<Method>(kDictMethods, name);
  if (self.as_list() != nullptr) return find_named<Method>(kListMethods, name);
  if (self.get<LoopState*>() != nullptr) return find_named<Method>(kLoopMethods, name);
  return nullptr;
}

Method find_method(const Value& self, std::string_view name) {
  return self.as_text() != nullptr ? find_string_method(name) : find_collection_method(self, name);
}

}  // namespace weft::text::jinja
