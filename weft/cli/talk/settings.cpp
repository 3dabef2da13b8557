#include "weft/cli/talk/settings.h"

#include <algorithm>
#include <array>

#include "weft/cli/flags.h"
#include "weft/core/did_you_mean.h"
#include "weft/core/error.h"

namespace weft::cli {
namespace {

using core::check;
using core::ConfigError;

// What is decided when the talk begins.
constexpr std::array<std::string_view, 3> kFixed = {"help", "ctx-size", "json"};
constexpr std::string_view kNone = "none";

bool is_setting(const CLI::Option& option) {
  const auto& names = option.get_lnames();
  return !names.empty() && std::find(kFixed.begin(), kFixed.end(), names[0]) == kFixed.end();
}

std::vector<std::string> setting_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    if (!is_setting(*option)) continue;
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  }
  return names;
}

// Takes away what is none by default; false for other settings.
bool take_away(AnswerOptions& options, const std::string& name) {
  if (name == "stop") {
    options.text.stops.clear();
  } else if (name == "logit-bias") {
    options.text.generate.sampler.logit_bias.clear();
  } else if (name == "json-schema" || name == "j") {
    options.json_schema.clear();
  } else if (name == "grammar" || name == "grammar-file") {
    options.grammar.clear();
  } else if (name == "regex") {
    options.regex.clear();
  } else {
    return false;
  }
  return true;
}

}  // namespace

void apply_setting(AnswerOptions& options, const std::string& name, const std::string& value) {
  AnswerOptions changed = options;
  CLI::App app("", "set");
  add_answer_flags(app, changed, "");
  CLI::Option* option = app.get_option_no_throw((name.size() == 1 ? "-" : "--") + name);
  check<ConfigError>(option != nullptr && is_setting(*option), "/set: no setting ",
                     core::quote(name), core::did_you_mean(name, setting_names(app)),
                     "; /set alone lists them");
  if (value == kNone && take_away(changed, name)) {
    check_answer_flags(changed);
    options = changed;
    return;
  }
  check<ConfigError>(!value.empty(), "/set ", name, ": no value; expected ",
                     option->get_description());
  try {
    option->add_result(value);
    option->run_callback();
  } catch (const CLI::ParseError& error) {
    core::fail<ConfigError>("/set ", name, ": ", error.what());
  }
  check_answer_flags(changed);
  options = changed;
}

std::string settings_text(const AnswerOptions& options) {
  constexpr size_t kColumn = 20;
  AnswerOptions shown = options;
  CLI::App app("", "set");
  add_answer_flags(app, shown, "");
  std::string text;
  for (CLI::Option* option : app.get_options()) {
    if (!is_setting(*option)) continue;
    option->capture_default_str();
    std::string name = option->get_lnames()[0];
    name.resize(std::max(kColumn, name.size() + 1), ' ');
    const bool is_flag = option->get_items_expected_max() == 0;
    const char* const switched = options.text.ignores_end ? "true" : "false";
    text += core::join("  ", name, is_flag ? switched : option->get_default_str(), "\n");
  }
  return text;
}

}  // namespace weft::cli
