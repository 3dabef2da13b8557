#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "weft/core/error.h"
#include "weft/text/jinja/text.h"

namespace weft::text::jinja {

/// Something that a running template did wrong; the evaluator adds the place.
class Fault : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Throws a Fault of the joined parts.
template <class... Parts>
[[noreturn]] void fault(const Parts&... parts) {
  throw Fault(core::join(parts...));
}

struct List;
struct Dict;
struct Callable;
struct Namespace;
struct LoopState;

/// What a name without a value has; using it is mostly an error that tells `hint`.
struct Undefined {
  std::shared_ptr<const std::string> hint;
};
/// Jinja's none.
struct None {};

/// Any value of a template, in Python's type system. Immutable but for namespaces.
class Value {
 public:
  /// Namespaces and loops belong to the evaluator that runs, so cycles through them leak nothing.
  using Data = std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const Text>,
                            std::shared_ptr<const List>, std::shared_ptr<const Dict>,
                            std::shared_ptr<const Callable>, Namespace*, LoopState*>;

  Value() = default;
  template <class T>
  explicit Value(T data) : data_(std::move(data)) {}

  /// Undefined, with the joined parts as its hint.
  template <class... Parts>
  static Value undefined(const Parts&... parts) {
    return Value(Undefined{std::make_shared<const std::string>(core::join(parts...))});
  }
  static Value text(Text text);
  static Value text(std::string_view bytes) { return text(Text(std::string(bytes))); }
  static Value integer(int64_t value) { return Value(value); }
  /// Throws Fault when the nesting or the weight passes its limit.
  static Value list(std::vector<Value> items, bool is_tuple = false);
  /// Later entries of an equal key replace the earlier ones. Throws Fault as `list`, and for keys
  /// that no Python dict takes.
  static Value dict(std::vector<std::pair<Value, Value>> entries);

  const Data& data() const { return data_; }
  template <class T>
  const T* get() const {
    return std::get_if<T>(&data_);
  }
  bool is_undefined() const { return get<Undefined>() != nullptr; }
  bool is_none() const { return get<None>() != nullptr; }
  bool is_number() const { return get<bool>() || get<int64_t>() || get<double>(); }
  /// Whole numbers and truth values; nothing else.
  bool is_integer() const { return get<bool>() || get<int64_t>(); }
  /// The object, or nullptr for any other type.
  const Text* as_text() const;
  const List* as_list() const;
  const Dict* as_dict() const;
  /// Numbers of any type. Precondition: is_number(), is_integer().
  double as_double() const;
  int64_t as_integer() const;

 private:
  Data data_;
};

/// How much a value is to walk or print. A small program can build a huge value by putting one into
/// another twice, again and again; both are bounded, so no walk of one value takes long.
struct Extent {
  /// Levels of lists and dicts.
  int depth = 0;
  /// Parts, each as often as it occurs; 64 bytes of a text are one.
  uint64_t weight = 1;
};
/// What the value counts against the limits.
Extent extent_of(const Value& value);

/// A list or tuple.
struct List {
  std::vector<Value> items;
  bool is_tuple = false;
  Extent extent = {};
};

/// A mapping that keeps its order.
struct Dict {
  std::vector<std::pair<Value, Value>> entries;
  Extent extent = {};

  /// The value of a key, or nullptr. Linear.
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
};

/// What namespace() makes: attributes that can be set.
struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;
};

/// Python's name of a value's type.
std::string type_name(const Value& value);
bool is_true(const Value& value);
/// Python's ==.
bool equals(const Value& a, const Value& b);
/// Python's < ; throws Fault for types without an order.
bool less(const Value& a, const Value& b);
/// Python's `str()`; undefined is empty. Keeps the origins of a string; of anything else all counts
/// as typed if a part of it was.
Text to_text(const Value& value);
/// Python's `repr()`.
std::string to_repr(const Value& value);
/// True if a character of a string inside it was typed.
bool any_typed(const Value& value);
/// Shortest form that reads back the same, written as Python does.
std::string float_text(double value);
/// What a `for` goes over: items, characters, keys. Throws Fault for other types.
std::vector<Value> to_items(const Value& value);
/// The characters of a text, each a text.
std::vector<Value> characters(const Text& text);

}  // namespace weft::text::jinja
