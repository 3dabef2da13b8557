#include "weft/cli/help/help_text.h"

#include <algorithm>
#include <cctype>
#include <sstream>
#include <string_view>

#include "weft/cli/streams.h"

namespace weft::cli {
namespace {

constexpr size_t kWidth = 100;
constexpr size_t kColumn = 32;
constexpr char kCommon[] = "Options";

HelpCapture* current_capture = nullptr;

// Where flags stand that are not among the first group's. Names that no verb has do no harm.
struct Placement {
  std::string_view group;
  std::vector<std::string_view> flags;
};

const std::vector<Placement>& placements() {
  static const std::vector<Placement> table = {
      {"How tokens are drawn",
       {"temp", "top-k", "top-p", "min-p", "seed", "repeat-penalty", "repeat-last-n",
        "presence-penalty", "frequency-penalty", "logit-bias", "grammar", "grammar-file",
        "json-schema", "regex", "logprobs", "speculate"}},
      {"A server that is measured",
       {"url", "clients", "rate", "num-requests", "shared-words", "first-token-limit",
        "between-tokens-limit", "ssl-ca-file"}},
      {"Model",
       {"adapter", "shard-info", "functions", "activations", "cache-type", "expert-split",
        "head-split"}},
      {"Ranks and machine", {"tp", "threads", "device", "backend"}},
  };
  return table;
}

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

// Characters, as far as each takes one column.
size_t width_of(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::string value_of(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return "";
  const std::string type = option.get_type_name();
  const std::string word = type.substr(0, type.find_first_of(":(["));
  return word.empty() ? "VALUE" : word;
}

HelpFlag flag_of(const CLI::Option& option) {
  HelpFlag flag;
  const bool is_argument = option.get_positional();
  if (is_argument) flag.names.push_back(upper(option.get_name(true)));
  for (const std::string& name : option.get_snames()) flag.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) flag.names.push_back("--" + name);
  flag.value = value_of(option);
  flag.about = option.get_description();
  return flag;
}

std::string group_of(const CLI::Option& option) {
  const auto& names = option.get_lnames();
  for (const Placement& placement : placements()) {
    const bool is_there =
        !names.empty() && std::find(placement.flags.begin(), placement.flags.end(), names[0]) !=
                              placement.flags.end();
    if (is_there) return std::string(placement.group);
  }
  return kCommon;
}

// Words from column `begin` on; the text is on a line that is `column` wide already.
void add_wrapped(std::string& out, std::string_view text, size_t column, size_t begin) {
  std::istringstream words{std::string(text)};
  bool is_first = true;
  for (std::string word; words >> word; is_first = false) {
    const size_t width = width_of(word) + (is_first ? 0 : 1);
    if (!is_first && column + width > kWidth) {
      out += "\n" + std::string(begin, ' ') + word;
      column = begin + width_of(word);
      continue;
    }
    out += (is_first ? "" : " ") + word;
    column += width;
  }
  out += "\n";
}

void add_flag(std::string& out, const HelpFlag& flag) {
  std::string head = "  ";
  for (const std::string& name : flag.names) head += (head.size() > 2 ? ", " : "") + name;
  if (!flag.value.empty()) head += " " + flag.value;
  out += head;
  size_t column = width_of(head);
  if (column + 2 > kColumn) {
    out += "\n";
    column = 0;
  }
  out += std::string(kColumn - column, ' ');
  add_wrapped(out, flag.about, kColumn, kColumn);
}

}  // namespace

std::vector<HelpGroup> help_groups(const CLI::App& app) {
  std::vector<HelpGroup> groups = {{kCommon, {}}};
  for (const Placement& placement : placements()) {
    groups.push_back({std::string(placement.group), {}});
  }
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = group_of(*option);
    const auto group = std::find_if(groups.begin(), groups.end(),
                                    [&](const HelpGroup& each) { return each.name == name; });
    group->flags.push_back(flag_of(*option));
  }
  // What every verb has stands behind its own.
  auto& common = groups.front().flags;
  std::stable_partition(common.begin(), common.end(), [](const HelpFlag& flag) {
    return flag.names.back() != "--help" && flag.names.back() != "--config";
  });
  std::erase_if(groups, [](const HelpGroup& group) { return group.flags.empty(); });
  return groups;
}

std::string usage_text(const CLI::App& app) {
  std::string usage = "weft " + app.get_name() + " [OPTION…]";
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_positional()) continue;
    usage += " [" + upper(option->get_name(true)) + "]";
    if (option->get_items_expected_max() > 1) usage += "…";
  }
  return usage;
}

std::string help_text(const CLI::App& app) {
  std::string text;
  std::istringstream lines(app.get_description());
  for (std::string line; std::getline(lines, line);) add_wrapped(text, line, 0, 0);
  text = "Usage: " + usage_text(app) + "\n\n" + text;
  for (const HelpGroup& group : help_groups(app)) {
    text += "\n" + group.name + ":\n";
    for (const HelpFlag& flag : group.flags) add_flag(text, flag);
  }
  return text;
}

HelpCapture::HelpCapture() { current_capture = this; }

HelpCapture::~HelpCapture() { current_capture = nullptr; }

void show_help(const CLI::App& app) {
  if (current_capture == nullptr) {
    TextOutput().write(help_text(app));
    return;
  }
  current_capture->help_ = {app.get_name(), "", usage_text(app), app.get_description(),
                            help_groups(app)};
}

}  // namespace weft::cli
