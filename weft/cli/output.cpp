#include "weft/cli/output.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

#include "weft/core/error.h"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;
using core::check;
using core::ConfigError;

constexpr char kRemedy[] = "give --force";
constexpr char kTemplates[] = "additional_chat_templates";

// What a folder of Hugging Face's has beside its weights: its configurations, the parts of
// tokenizers, code and what people read.
constexpr std::array<std::string_view, 21> kNames = {
    "config.json",         "tokenizer.json",  "special_tokens_map.json",
    "added_tokens.json",   "vocab.json",      "vocab.txt",
    "merges.txt",          "tokenizer.model", "spiece.model",
    "tokenizer.model.v3",  "tiktoken.model",  "chat_template.json",
    "chat_template.jinja", "README.md",       "LICENSE",
    "LICENSE.txt",         "LICENSE.md",      "NOTICE",
    "USE_POLICY.md",       "tekken.json",     "shard_info.json"};
constexpr std::array<std::string_view, 4> kEndings = {".safetensors", ".safetensors.index.json",
                                                      "_config.json", ".tiktoken"};
constexpr std::array<std::string_view, 3> kCode = {"configuration_", "modeling_", "tokenization_"};

bool is_part_of_model(const std::string& name) {
  const fs::path path(name);
  if (path == kTemplates) return true;
  if (path.has_parent_path()) {
    return path.parent_path() == kTemplates && path.extension() == ".jinja";
  }
  const auto ends = [&](std::string_view ending) { return name.ends_with(ending); };
  const auto begins = [&](std::string_view start) { return name.starts_with(start); };
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end() ||
         std::any_of(kEndings.begin(), kEndings.end(), ends) ||
         (name.ends_with(".py") && std::any_of(kCode.begin(), kCode.end(), begins));
}

bool is_same(const fs::path& a, const fs::path& b) {
  std::error_code error;
  return fs::equivalent(a, b, error) && !error;
}

// Whether `path`, which need not be there, is below the folder.
bool lies_in(const std::string& path, const std::string& folder) {
  std::error_code error;
  fs::path here = fs::weakly_canonical(path, error);
  while (here != here.parent_path()) {
    here = here.parent_path();
    if (is_same(here, folder)) return true;
  }
  return false;
}

// A file of the folder may have another name elsewhere.
bool holds_file(const std::string& folder, const std::string& file) {
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (is_same(entry->path(), file)) return true;
  }
  return false;
}

// Where the parts lie of a model that is named by its index or its first part.
std::string folder_of_parts(const std::string& input) {
  const fs::path path(input);
  const std::string name = path.filename().string();
  const bool is_in_parts = name.ends_with(".index.json") || name.ends_with("-cache.json") ||
                           name.find("-of-") != std::string::npos;
  if (!is_in_parts || fs::is_directory(path)) return input;
  return path.has_parent_path() ? path.parent_path().string() : ".";
}

void check_is_not_input(const std::string& out, const std::string& input) {
  check<ConfigError>(!is_same(out, input), out,
                     ": is what is read, so it is not written; choose another path");
}

}  // namespace

Inputs model_inputs(const ModelOptions& options, const std::string& path) {
  return {path, options.adapter, options.shard_info, options.functions};
}

core::ReplaceableFolder model_folder() { return {"config.json", is_part_of_model, kRemedy}; }

core::ReplaceableFolder folder_of_files(const std::vector<std::string>& names) {
  const auto is_one = [names](const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  return {names.front(), is_one, kRemedy};
}

void check_new_folder(const OutputOptions& output, const core::ReplaceableFolder& kind,
                      const Inputs& inputs) {
  for (const std::string& input : inputs) {
    if (input.empty()) continue;
    check_is_not_input(output.out, input);
    check<ConfigError>(!lies_in(input, output.out), output.out, ": holds ", input,
                       ", which is read; choose another path");
  }
  core::check_output_folder(output.out, output.force, kind);
}

void check_new_file(const std::string& out, bool force, const Inputs& inputs) {
  for (const std::string& input : inputs) {
    if (input.empty()) continue;
    check_is_not_input(out, input);
    const std::string folder = folder_of_parts(input);
    if (!fs::is_directory(folder)) continue;
    check_lies_elsewhere(out, folder);
  }
  std::error_code error;
  const bool is_there = fs::exists(fs::symlink_status(out, error));
  check<ConfigError>(force || !is_there, out, ": is there already; choose another path or ",
                     kRemedy);
}

void check_lies_elsewhere(const std::string& out, const std::string& folder) {
  const std::string shown = folder.empty() ? "." : folder;
  check<ConfigError>(!lies_in(out, shown) && !holds_file(shown, out), out, ": lies in ", shown,
                     ", which is read; choose another path");
}

}  // namespace weft::cli
