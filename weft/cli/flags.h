#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "weft/cli/options.h"

namespace weft::cli {

/// Parses `args` with `app`. Values come from the flag, else from WEFT_<FLAG> in the environment,
/// else from the TOML file of --config (keys are the long flag names), else stay as they are.
/// `required` are flags that must have got a value from one of these.
/// Returns false when help was asked for and printed.
/// Throws ConfigError in weft's form, with a near flag's name for one that is unknown.
bool parse_flags(CLI::App& app, const std::vector<std::string>& args,
                 const std::vector<std::string>& required = {});

/// Accepts whole numbers from `low` to `high` and nothing else: "expected 1 to 8, got 9".
CLI::Validator whole_number(int64_t low, int64_t high);

/// Whole numbers from 0 between commas, at least one. `expected` says what they are, for the
/// message. Throws ConfigError naming `flag`.
std::vector<int64_t> parse_list(const std::string& flag, const std::string& text,
                                const std::string& expected);

/// Requests a second between commas, at least one, each 0.001 to 100,000. Throws ConfigError naming
/// `flag`.
std::vector<double> parse_rates(const std::string& flag, const std::string& text);

/// Adds MODEL, --tp, --threads and --backend, which all verbs that take a model have, bound to
/// `options`, which must outlive the parse; so must all that the functions below bind.
void add_source_flags(CLI::App& app, ModelOptions& options);

/// Adds those, and what verbs that run a model have: how it is cut and what activations are.
void add_model_flags(CLI::App& app, ModelOptions& options);

/// Adds --device: where weights lie and a pass runs.
void add_device_flag(CLI::App& app, ModelOptions& options);

/// Adds --cache-type: what keys and values are kept in.
void add_cache_flag(CLI::App& app, ModelOptions& options);

/// --exact.
void add_exact_flag(CLI::App& app, ModelOptions& options);
/// Adds --adapter.
void add_adapter_flag(CLI::App& app, ModelOptions& options);

/// Adds --adapter of verbs that answer requests, which may be given several times: `given` has what
/// take_adapters reads once all flags are.
void add_adapters_flag(CLI::App& app, std::vector<std::string>& given);

/// Takes FOLDER, at most once, as what stands beside the model for all requests, and NAME=FOLDER as
/// what they may ask for. Throws ConfigError for a name twice or "default".
void take_adapters(const std::vector<std::string>& given, ModelOptions& options);

/// Adds the flags of verbs that may run on a GPU or with adapters: those above.
void add_running_flags(CLI::App& app, ModelOptions& options);

/// Adds --expert-split, which takes "ffn" and "experts" alone.
void add_expert_split_flag(CLI::App& app, std::string& name);

/// Adds --head-split, which takes "kv" and "even" alone.
void add_head_split_flag(CLI::App& app, std::string& name);

/// Adds -n, --ctx-size, --ignore-eos, --stop, --speculate, --json and the sampler's flags.
void add_answer_flags(CLI::App& app, AnswerOptions& options, const std::string& about_json);

/// Throws ConfigError for what these flags may not be, and says -n -1 in numbers.
void check_answer_flags(AnswerOptions& options);

/// Adds --speculate.
void add_speculate_flag(CLI::App& app, int64_t& most_guesses);

/// Adds --shard-info, which is described as `about`, and --functions.
void add_rule_flags(CLI::App& app, std::string& shard_info, std::string& functions,
                    const std::string& about);

/// Adds MODEL, --tensors, --shard-info and --functions.
void add_cut_flags(CLI::App& app, CutOptions& options);

/// Throw ConfigError for flags that do not go together.
void check_rule_flags(const std::string& shard_info, const std::string& functions);
void check_cut_flags(const CutOptions& options);

/// Adds -o and --force of a verb that writes a file; `what` says which.
void add_file_flags(CLI::App& app, std::string& out, bool& force, const std::string& what);

/// Adds OUT, --force and --max-shard-size.
void add_output_flags(CLI::App& app, OutputOptions& options);

/// A verb and its arguments as one list.
Args command_of(const std::string& verb, const Args& args);

/// `model` if given, as path_in_hub_cache has it, else WEFT_MODEL, else the model that set-up
/// installs beside the build folder. Throws ConfigError if there is none.
std::string model_path(const std::string& model);

/// This program's own file.
std::string program_path();

}  // namespace weft::cli
