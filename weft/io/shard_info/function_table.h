#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "weft/io/views/view.h"

namespace weft::io {

/// An argument of a function in shard_info.json.
using Argument = std::variant<int64_t, std::string, std::vector<int64_t>>;

/// "[2, 3]", "'q'", "5".
std::string to_text(const Argument& argument);

/// What a function does to a parameter.
enum class FunctionKind {
  /// Puts elements in another order; knows no ranks.
  kReorder,
  /// Gives one rank its shard; sizes may differ between ranks. One per parameter.
  kShard,
  /// TVM's way: gives all shards, of one size, along a new dim 0 of that size.
  kStack,
};

/// One application of a function. The arguments were checked against the signature.
struct FunctionCall {
  /// More than one for functions that combine tensors.
  std::span<const View> inputs;
  std::span<const Argument> arguments;
  /// For kShard only.
  int64_t num_ranks = 1;
  int64_t rank = 0;
  /// What shard_info says that the result is; null where it doesn't (weft's form).
  const TensorType* declared = nullptr;

  const View& input() const { return inputs[0]; }
  bool has(size_t index) const { return index < arguments.size(); }
  int64_t integer(size_t index) const { return std::get<int64_t>(arguments[index]); }
  /// `fallback` where the argument was left out.
  int64_t integer_or(size_t index, int64_t fallback) const;
  const std::string& text(size_t index) const { return std::get<std::string>(arguments[index]); }
  const std::vector<int64_t>& list(size_t index) const;
};

/// How a kStack function cuts, where it is the same as cutting one dim: `n` equal shards of `dim`,
/// or of each of `lengths` along it if that is not empty.
struct StackCut {
  int64_t dim = 0;
  int64_t n = 1;
  std::vector<int64_t> lengths;
};

/// A row of the table of functions.
struct ViewFunction {
  std::string name;
  FunctionKind kind = FunctionKind::kReorder;
  /// Names of the arguments: `dim` is an integer, `sizes[]` a list, `part:` a text; `unit?` may be
  /// left out, `extras*` stands for any number of integers.
  std::string signature;
  /// One line for people.
  std::string summary;
  /// Throws ShapeError or ConfigError.
  std::function<View(const FunctionCall&)> apply;
  /// Whether it takes several tensors ("from").
  bool takes_many = false;
  /// Of a kStack function whose shards can be joined again; throws as `apply`.
  std::function<StackCut(const FunctionCall&)> stack_cut = nullptr;
};

/// A function that a view can't express: it gets the bytes of its whole input in memory and fills
/// its whole output. Every rank that needs the output runs it. Its memory is planned beforehand.
class EagerFunction {
 public:
  virtual ~EagerFunction() = default;
  /// Type of the output. Called on all ranks before anything is read; throws ShapeError or
  /// ConfigError for what it does not take.
  virtual TensorType output_type(const TensorType& input,
                                 std::span<const Argument> arguments) const = 0;
  /// Fills `output`, row-major and of output_type, from `input`, row-major.
  virtual void run(std::span<const std::byte> input, const TensorType& input_type,
                   std::span<const Argument> arguments, std::span<std::byte> output) const = 0;
};

/// A name's function and what the name gives it: arguments before the call's own, or around them
/// where texts "$1", "$2"… stand for the call's first, second….
struct FunctionBinding {
  std::string function;
  std::vector<Argument> arguments;
};

/// A function by name, and what the name gives it.
struct FoundFunction {
  const ViewFunction* view = nullptr;
  std::shared_ptr<const EagerFunction> eager;
  std::vector<Argument> bound;

  /// All arguments of a call that gives `given`. Throws ConfigError beginning with `where` if the
  /// name takes other arguments.
  std::vector<Argument> arguments(std::span<const Argument> given, const std::string& where) const;
};

/// Heads of a model's attention.
struct HeadCounts {
  int64_t heads = 0;
  int64_t kv_heads = 0;
};

/// Names of functions: weft's own, MLC's (mlc_function) and those that a user adds. Not safe to
/// change while in use.
class FunctionTable {
 public:
  /// weft's own rows: reorder_functions, shard_functions and stack_functions.
  FunctionTable();

  /// Adds a function on views. Throws ConfigError if the name is taken.
  void add(ViewFunction function);
  /// Adds a function on tensors in memory. Throws ConfigError if the name is taken.
  void add(const std::string& name, std::shared_ptr<const EagerFunction> function);
  /// Lets `name` stand for `function` with these arguments (FunctionBinding), and a name of MLC's
  /// for another function than its usual one. Throws ConfigError if the name is taken or there is
  /// no function.
  void add_alias(const std::string& name, const std::string& function,
                 std::vector<Argument> arguments,
                 const std::string& where = "io.FunctionTable.add_alias");
  /// For MLC's functions, which have the heads compiled in.
  void set_heads(const HeadCounts& heads) { heads_ = heads; }

  /// Throws ConfigError, beginning with `where`, that lists near names.
  FoundFunction find(const std::string& name, const std::string& where) const;
  /// weft's own and added functions on views, by name.
  const std::map<std::string, ViewFunction>& view_functions() const { return view_functions_; }

 private:
  void check_free(const std::string& name, const std::string& where) const;

  std::map<std::string, ViewFunction> view_functions_;
  std::map<std::string, std::shared_ptr<const EagerFunction>> eager_functions_;
  std::map<std::string, FunctionBinding> aliases_;
  std::optional<HeadCounts> heads_;
};

/// Throws ConfigError, beginning with `where`, that shows the signature if number or kinds of the
/// arguments differ from it.
void check_arguments(const ViewFunction& function, std::span<const Argument> arguments,
                     const std::string& where);

/// The rows of weft's own functions, each in a file of that name.
std::vector<ViewFunction> reorder_functions();
std::vector<ViewFunction> shard_functions();
std::vector<ViewFunction> stack_functions();

/// What a function of MLC-LLM's does, by the name that MLC gives it in all its models ("_shard_o",
/// "_shard_qkv_q_weight"); nothing for other names. `heads` is needed for fused q, k and v: throws
/// ConfigError beginning with `where` without.
std::optional<FunctionBinding> mlc_function(const std::string& name,
                                            const std::optional<HeadCounts>& heads,
                                            const std::string& where);

}  // namespace weft::io
