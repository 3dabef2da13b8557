#pragma once

#include <string_view>
#include <vector>

#include "weft/serve/chat/tool_format.h"

namespace weft::serve {

/// How the text of a family's calls is read.
enum class CallForm {
  /// JSON objects with a name and arguments.
  kObjects,
  /// A name between marks, then a JSON object of arguments, which is told as it comes.
  kNamed,
  /// A name, then each argument between tags; a value's type is its schema's.
  kTagged,
  /// Calls as Python writes them, [f(x="a", y=1)], or JSON objects.
  kPython,
  /// call:f{x:"a",y:1} with names without quotes.
  kBraces,
  /// Messages with a header that says to whom they go: harmony's.
  kChannels,
};

/// What stands before and behind a call's name; in `after` a # is any number, and white space at
/// its ends is free.
struct CallHead {
  std::string_view before, after;
};

/// What stands around a call's name and each of its arguments (kTagged).
struct CallTags {
  std::string_view before_name = {}, after_name = {};
  std::string_view before_key = {}, after_key = {}, before_value = {}, after_value = {};
  std::string_view end = {};
  /// A line break at each end of a value is no part of it.
  bool has_lines = false;
  /// xgrammar's name of the form.
  std::string_view style = "json";
};

/// How a family of models writes calls and reasoning: a row of the table that parser and grammar go
/// by. What is empty, the family does not have.
struct ToolFamily {
  ToolFormat format;
  /// A template is the family's if it has all words of one of these lists.
  std::vector<std::vector<std::string_view>> shown_by = {};
  CallForm form;
  /// Around one call, and around all of them.
  std::string_view call_begin = {}, call_end = {};
  std::string_view section_begin = {}, section_end = {};
  /// The ways to write the name before arguments that are told as they come; the first is what a
  /// grammar asks for.
  std::vector<CallHead> heads = {};
  /// What a head has between these is the call's id, by which its result is named in the history;
  /// id_begin is empty where the id is all before id_end.
  std::string_view id_begin = {}, id_end = {};
  /// The ways in which an object (kObjects) mostly begins, up to its arguments: as long as it keeps
  /// to one of them, these are told as they come.
  std::vector<CallHead> object_heads = {};
  /// What may stand between arguments and the call's end.
  std::string_view fence = {};
  /// Between calls, where a grammar asks for several.
  std::string_view between = {};
  CallTags tags = {};
  /// What begins and ends a text, beside quotes (kBraces).
  std::string_view quote = {};
  std::string_view think_begin = "<think>", think_end = "</think>";
};

/// The table.
const std::vector<ToolFamily>& tool_families();
const ToolFamily& tool_family(ToolFormat format);

/// Spellings that a text has to have for the parser, whether or not they are special tokens.
std::vector<std::string_view> marks_of(const ToolFamily& family);

}  // namespace weft::serve
