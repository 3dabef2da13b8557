#include "weft/io/shard_info/function_table.h"

#include <algorithm>
#include <sstream>

#include "weft/core/error.h"

namespace weft::io {

using core::check;
using core::ConfigError;
using core::quote;

namespace {
constexpr char kAdd[] = "io.FunctionTable.add";
}  // namespace

std::string to_text(const Argument& argument) {
  if (const auto* number = std::get_if<int64_t>(&argument)) return std::to_string(*number);
  if (const auto* text = std::get_if<std::string>(&argument)) return quote(*text);
  return core::list_text(std::get<std::vector<int64_t>>(argument));
}

int64_t FunctionCall::integer_or(size_t index, int64_t fallback) const {
  return has(index) ? integer(index) : fallback;
}

const std::vector<int64_t>& FunctionCall::list(size_t index) const {
  return std::get<std::vector<int64_t>>(arguments[index]);
}

FunctionTable::FunctionTable() {
  for (ViewFunction& row : reorder_functions()) add(std::move(row));
  for (ViewFunction& row : shard_functions()) add(std::move(row));
  for (ViewFunction& row : stack_functions()) add(std::move(row));
}

void FunctionTable::check_free(const std::string& name, const std::string& where) const {
  const bool is_taken =
      view_functions_.contains(name) || eager_functions_.contains(name) || aliases_.contains(name);
  check<ConfigError>(!is_taken, where, ": there is a function ", quote(name),
                     " already; choose another name");
}

void FunctionTable::add(ViewFunction function) {
  check_free(function.name, kAdd);
  std::string name = function.name;
  view_functions_.emplace(std::move(name), std::move(function));
}

void FunctionTable::add(const std::string& name, std::shared_ptr<const EagerFunction> function) {
  check_free(name, kAdd);
  eager_functions_.emplace(name, std::move(function));
}

void FunctionTable::add_alias(const std::string& name, const std::string& function,
                              std::vector<Argument> arguments, const std::string& where) {
  check_free(name, where);
  check<ConfigError>(!aliases_.contains(function), where, ": ", quote(function),
                     " is a name that stands for another function, expected a function");
  find(function, where);
  aliases_.emplace(name, FunctionBinding{function, std::move(arguments)});
}

FoundFunction FunctionTable::find(const std::string& name, const std::string& where) const {
  FoundFunction found;
  std::string target = name;
  if (const auto alias = aliases_.find(name); alias != aliases_.end()) {
    target = alias->second.function;
    found.bound = alias->second.arguments;
  } else if (auto binding = mlc_function(name, heads_, where)) {
    target = binding->function;
    found.bound = std::move(binding->arguments);
  }
  if (const auto row = view_functions_.find(target); row != view_functions_.end()) {
    found.view = &row->second;
  } else if (const auto eager = eager_functions_.find(target); eager != eager_functions_.end()) {
    found.eager = eager->second;
  } else {
    std::string known;
    for (const auto& [other, row_of_other] : view_functions_) {
      known.append(known.empty() ? "" : ", ").append(other);
    }
    core::fail<ConfigError>(where, ": unknown function ", quote(target),
                            "; bind it in a file of functions, or use ", known);
  }
  return found;
}

namespace {

// 1 for "$1"; 0 for what is no place.
size_t place_of(const Argument& argument) {
  const auto* text = std::get_if<std::string>(&argument);
  const bool is_place = text != nullptr && text->size() == 2 && (*text)[0] == '$' &&
                        (*text)[1] >= '1' && (*text)[1] <= '9';
  return is_place ? static_cast<size_t>((*text)[1] - '0') : 0;
}

}  // namespace

std::vector<Argument> FoundFunction::arguments(std::span<const Argument> given,
                                               const std::string& where) const {
  std::vector<Argument> all;
  size_t most = 0;
  for (const Argument& argument : bound) {
    const size_t place = place_of(argument);
    most = std::max(most, place);
    check<ConfigError>(place <= given.size(), where, ": ", given.size(),
                       " arguments, expected at least ", place, " for ", to_text(argument));
    all.push_back(place == 0 ? argument : given[place - 1]);
  }
  check<ConfigError>(most == 0 || most == given.size(), where, ": ", given.size(),
                     " arguments, expected ", most, " for the function that the name stands for");
  if (most == 0) all.insert(all.end(), given.begin(), given.end());
  return all;
}

namespace {

// Whether one argument is of the kind that its word in the signature says.
bool fits(const std::string& word, const Argument& argument) {
  if (word.find("[]") != std::string::npos) {
    return std::holds_alternative<std::vector<int64_t>>(argument);
  }
  if (word.find(':') != std::string::npos) return std::holds_alternative<std::string>(argument);
  return std::holds_alternative<int64_t>(argument);
}

bool matches(const std::string& signature, std::span<const Argument> arguments) {
  std::istringstream words(signature);
  size_t index = 0;
  for (std::string word; words >> word;) {
    if (word.ends_with('*')) {
      return std::all_of(arguments.begin() + static_cast<ptrdiff_t>(index), arguments.end(),
                         [&](const Argument& argument) { return fits(word, argument); });
    }
    if (index == arguments.size()) return word.ends_with('?');
    if (!fits(word, arguments[index++])) return false;
  }
  return index == arguments.size();
}

}  // namespace

void check_arguments(const ViewFunction& function, std::span<const Argument> arguments,
                     const std::string& where) {
  if (matches(function.signature, arguments)) return;
  std::string given;
  for (const Argument& argument : arguments) given.append(" ").append(to_text(argument));
  core::fail<ConfigError>(where, ": arguments", given.empty() ? " (none)" : given, ", expected ",
                          function.name, " ", function.signature,
                          "; x[] is a list, x: a text, x? may be left out, x* any number");
}

}  // namespace weft::io
