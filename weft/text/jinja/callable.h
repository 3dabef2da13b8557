#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/text/jinja/value.h"

namespace weft::text::jinja {

struct MacroNode;
class Scope;

/// Arguments of a call, a filter or a test.
struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

/// What functions, filters and tests need of the evaluator that runs them.
class Context {
 public:
  virtual ~Context() = default;
  /// Counts `work` units; throws Fault when the template has used all it may.
  virtual void charge(uint64_t work) = 0;
  /// A namespace that lives as long as the rendering.
  virtual Namespace& make_namespace() = 0;
};

/// Something that a template can call: a function, a method of a value, or a macro.
struct Callable {
  using Function = Value (*)(Context&, const Args&);
  using Method = Value (*)(Context&, const Value& self, const Args&);

  std::string name;
  Function function = nullptr;
  Method method = nullptr;
  Value self = Value();
  const MacroNode* macro = nullptr;
  /// Where the macro was defined.
  Scope* scope = nullptr;
  /// Of `self`.
  Extent extent = {};
};

/// The extent of something that holds `value`. Throws Fault past a limit.
Extent extent_around(const Value& value);

/// One level of a `for`.
struct LoopState {
  std::vector<Value> items;
  size_t index = 0;
  /// What `loop.changed` saw last.
  std::vector<Value> last_seen;
  bool has_seen = false;
};

/// The arguments in the order of `names`, nullptr for those not given. Throws Fault, naming `what`,
/// for more or unknown ones.
std::vector<const Value*> bind(std::string_view what, const Args& args,
                               std::initializer_list<std::string_view> names);

/// Typed reading of arguments. `what` names the argument in the Fault for another type.
std::string string_of(const Value& value, std::string_view what);
int64_t integer_of(const Value& value, std::string_view what);

/// Longest text that a template may build, in bytes.
constexpr size_t kMaxTextBytes = size_t{8} << 20;
/// Throws Fault if a text of `size` bytes is longer than that; charges for building it.
void charge_text(Context& context, size_t size);
/// Charges for walking all of a value.
void charge_walk(Context& context, const Value& value);
/// Charges for building or walking `count` items; throws Fault above the limit.
void charge_items(Context& context, size_t count);

/// Tables of what exists, by name; nullptr for an unknown name.
using Filter = Value (*)(Context&, const Value& input, const Args&);
using Test = bool (*)(Context&, const Value& input, const Args&);
/// The row of the table of this name; nothing if there is none.
Filter find_filter(std::string_view name);
Test find_test(std::string_view name);
Callable::Function find_function(std::string_view name);
Callable::Method find_method(const Value& self, std::string_view name);

/// One row of such a table.
template <class Entry>
struct Named {
  std::string_view name;
  Entry entry;
};
/// The entry of `name` in a table, or nullptr.
template <class Entry>
Entry find_named(std::span<const Named<Entry>> table, std::string_view name) {
  for (const Named<Entry>& row : table) {
    if (row.name == name) return row.entry;
  }
  return nullptr;
}

/// `value[key]` and `value.name` as Jinja looks them up; undefined if there is none.
Value get_item(Context& context, const Value& value, const Value& key);
Value get_attribute(const Value& value, const std::string& name);

/// JSON text as Python's `json.dumps` writes it.
struct JsonStyle {
  /// Spaces per level, -1 for one line.
  int indent = -1;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool ascii = false;
  bool sort_keys = false;
};
/// The value as JSON, as Python's json.dumps writes it.
std::string dump_value(Context& context, const Value& value, const JsonStyle& style);

}  // namespace weft::text::jinja
