#include <array>
#include <ctime>

#include "weft/text/jinja/callable.h"

namespace weft::text::jinja {
namespace {

// The same bound as Jinja's sandbox.
constexpr int64_t kMaxRange = 100'000;

// How many steps lead from `begin` to before `end`, without overflow.
uint64_t range_size(int64_t begin, int64_t end, int64_t step) {
  if (step > 0 ? begin >= end : begin <= end) return 0;
  const auto distance = step > 0 ? static_cast<uint64_t>(end) - static_cast<uint64_t>(begin)
                                 : static_cast<uint64_t>(begin) - static_cast<uint64_t>(end);
  const auto stride = step > 0 ? static_cast<uint64_t>(step) : -static_cast<uint64_t>(step);
  return (distance - 1) / stride + 1;
}

Value range_function(Context& context, const Args& args) {
  const auto arg = bind("range", args, {"start", "stop", "step"});
  if (arg[0] == nullptr) fault("range needs at least one argument");
  const auto number = [](const Value* value, int64_t fallback) {
    return value == nullptr ? fallback : integer_of(*value, "range");
  };
  const int64_t begin = arg[1] == nullptr ? 0 : number(arg[0], 0);
  const int64_t end = arg[1] == nullptr ? number(arg[0], 0) : number(arg[1], 0);
  const int64_t step = number(arg[2], 1);
  if (step == 0) fault("range's step must not be zero");
  const uint64_t size = range_size(begin, end, step);
  if (size > kMaxRange) fault("range is longer than the limit of ", kMaxRange, " items");
  charge_items(context, size);
  std::vector<Value> items;
  items.reserve(size);
  for (uint64_t i = 0; i < size; ++i) {
    items.push_back(Value::integer(begin + static_cast<int64_t>(i) * step));
  }
  return Value::list(std::move(items));
}

std::vector<std::pair<Value, Value>> entries_of(Context& context, const Args& args) {
  std::vector<std::pair<Value, Value>> entries;
  for (const Value& source : args.positional) {
    if (const Dict* dict = source.as_dict()) {
      entries.insert(entries.end(), dict->entries.begin(), dict->entries.end());
      continue;
    }
    for (const Value& item : to_items(source)) {
      const std::vector<Value> pair = to_items(item);
      if (pair.size() != 2) fault("dict: expected pairs, got ", pair.size(), " values");
      entries.emplace_back(pair[0], pair[1]);
    }
  }
  for (const auto& [name, value] : args.named) entries.emplace_back(Value::text(name), value);
  charge_items(context, entries.size());
  // Each key is looked for among the ones before it.
  context.charge(entries.size() * entries.size() / 16);
  return entries;
}

Value dict_function(Context& context, const Args& args) {
  return Value::dict(entries_of(context, args));
}

Value namespace_function(Context& context, const Args& args) {
  Namespace& space = context.make_namespace();
  const Value values = Value::dict(entries_of(context, args));
  for (const auto& [key, value] : values.as_dict()->entries) {
    space.attributes.emplace_back(string_of(key, "namespace's attribute"), value);
  }
  return Value(&space);
}

Value raise_function(Context&, const Args& args) {
  const auto arg = bind("raise_exception", args, {"message"});
  fault("the template refuses: ", arg[0] == nullptr ? "" : to_text(*arg[0]).bytes());
}

Value strftime_function(Context&, const Args& args) {
  const auto arg = bind("strftime_now", args, {"format"});
  const std::string format = arg[0] == nullptr ? "" : string_of(*arg[0], "strftime_now's format");
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, 4096> text{};
  const size_t size = std::strftime(text.data(), text.size(), format.c_str(), &local);
  if (size == 0 && !format.empty()) fault("strftime_now: the format is empty or too long");
  return Value::text(std::string_view(text.data(), size));
}

constexpr Named<Callable::Function> kFunctions[] = {
    {"dict", dict_function},
    {"namespace", namespace_function},
    {"raise_exception", raise_function},
    {"range", range_function},
    {"strftime_now", strftime_function},
};

}  // namespace

Callable::Function find_function(std::string_view name) {
  return find_named<Callable::Function>(kFunctions, name);
}

}  // namespace weft::text::jinja
